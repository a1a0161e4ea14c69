//! quantize
