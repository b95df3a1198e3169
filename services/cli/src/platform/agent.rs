//! The agent of this machine, from the settings.
