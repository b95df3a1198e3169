//! The ledger and its sister streams behind one port, with the protocol on top.
