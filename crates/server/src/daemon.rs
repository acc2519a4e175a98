//! The process: background, pid and argument files, user, group and root directory, signals.
