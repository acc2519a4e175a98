//! End to end tests; see the files in this folder.
