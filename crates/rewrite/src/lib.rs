//! rewrite
