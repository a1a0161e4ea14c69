//! cleave
