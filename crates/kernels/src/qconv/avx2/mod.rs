//! Tiles in 256-bit vectors: six pixels by 16 channels, of words with AVX2 alone and of bytes with `vpdpbusd`.

pub(super) mod activation;
pub(super) mod dot;
pub(super) mod epilogue;
pub(super) mod words;
