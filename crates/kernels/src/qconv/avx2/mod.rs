//! Tiles in 256-bit vectors: six pixels by 16 channels of bytes with `vpdpbusd`; with AVX2 alone 16 pixels by 4 channels,
//! staged, of octets or words, or of few pixels those by 16 channels of words.

pub(super) mod activation;
pub(super) mod dot;
pub(super) mod epilogue;
mod run;
pub(super) mod staged;
pub(super) mod words;
