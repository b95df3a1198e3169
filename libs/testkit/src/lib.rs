//! Fixtures with real servers, eventually() and golden().
