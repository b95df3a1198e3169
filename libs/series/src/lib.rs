//! The series store port, its codec and its embedded back end.
