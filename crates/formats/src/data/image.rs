//! Images as samples: resized, cropped to the middle, scaled.

use super::InputSpec;
use crate::error::{FormatError, Result};
use cleave_ir::{Dim, Tensor};
use cleave_numerics::DType;
use image::imageops::FilterType;
use image::{DynamicImage, ImageReader, Limits};
use std::path::Path;

/// Bytes that decoding one image may take.
const DECODE_LIMIT: u64 = 1 << 30;

/// Where the channels of an image tensor stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// `[N, C, H, W]`, as torch and ONNX have it.
    Nchw,
    /// `[N, H, W, C]`.
    Nhwc,
}

/// How an image becomes an input. An f32 input gets `(pixel / 255 - mean) / std`, a u8 input the pixels.
#[derive(Clone, Debug, Default)]
pub struct ImageOptions {
    /// Length that the shorter side is scaled to, bilinearly. Without it, the image is scaled until it just covers the crop.
    pub resize: Option<usize>,
    /// Height and width that are cut out of the middle; without it, those of the input.
    pub crop: Option<[usize; 2]>,
    /// What is subtracted from each channel, or from all; without it, 0.
    pub mean: Vec<f32>,
    /// What each channel is divided by, or all; without it, 1.
    pub std: Vec<f32>,
    /// Where the channels stand; without it, where the input has 1 or 3 of them.
    pub layout: Option<Layout>,
}

/// What the only input wants of an image.
struct Wanted {
    layout: Layout,
    channels: usize,
    size: Option<[usize; 2]>,
    dtype: DType,
}

/// Whether images can be given to the model with these options.
pub(super) fn check(path: &Path, spec: &InputSpec, options: &ImageOptions) -> Result<()> {
    wanted(spec, options).map(drop).map_err(|why| FormatError::data(path, why))
}

/// The image as one sample, `[1, …]`.
pub(super) fn load(path: &Path, spec: &InputSpec, options: &ImageOptions) -> Result<Tensor> {
    let want = wanted(spec, options).map_err(|why| FormatError::data(path, why))?;
    let failed =
        |e: &dyn std::fmt::Display| FormatError::malformed(path, format!("not an image that can be decoded: {e}"));
    let reader = ImageReader::open(path).map_err(|e| FormatError::io(path, "read", e))?;
    let mut reader = reader.with_guessed_format().map_err(|e| FormatError::io(path, "read", e))?;
    let mut limits = Limits::default();
    limits.max_alloc = Some(DECODE_LIMIT);
    reader.limits(limits);
    let decoded: DynamicImage = reader.decode().map_err(|e| failed(&e))?;
    let gray = want.channels == 1;
    // Alpha is dropped and 16-bit channels are halved before anything is scaled.
    let plain = if gray { DynamicImage::from(decoded.to_luma8()) } else { DynamicImage::from(decoded.to_rgb8()) };
    let im = prepare(plain, &want, options).map_err(|why| FormatError::data(path, why))?;
    let size = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
    let (w, h) = (size(im.width()), size(im.height()));
    Ok(tensor(&im.into_bytes(), &want, options, h, w))
}

fn wanted(spec: &InputSpec, options: &ImageOptions) -> std::result::Result<Wanted, String> {
    let meta = &spec.metas[0];
    let shown = || cleave_ir::text::meta_text(&cleave_ir::Meta::Tensor(meta.clone()));
    if !spec.batched(0) || meta.shape.len() != 4 {
        return Err(format!("images need an input of 4 dimensions, the input '{}' is {}", spec.names[0], shown()));
    }
    if !matches!(meta.dtype, DType::F32 | DType::U8) {
        return Err(format!("images can be given as f32 or u8, the input '{}' is {}", spec.names[0], shown()));
    }
    let channels = |d: &Dim| d.as_const().filter(|c| matches!(c, 1 | 3)).map(|c| if c == 1 { 1 } else { 3 });
    let (first, last) = (channels(&meta.shape[1]), channels(&meta.shape[3]));
    let (layout, channels) = match (options.layout, first, last) {
        (Some(Layout::Nchw) | None, Some(c), _) => (Layout::Nchw, c),
        (Some(Layout::Nhwc) | None, _, Some(c)) => (Layout::Nhwc, c),
        _ => return Err(format!("images have 1 or 3 channels, the input '{}' is {}", spec.names[0], shown())),
    };
    for (what, v) in [("mean", &options.mean), ("std", &options.std)] {
        if !matches!(v.len(), 0 | 1) && v.len() != channels {
            return Err(format!("{what} of {} numbers for {channels} channels", v.len()));
        }
        if !v.is_empty() && meta.dtype == DType::U8 {
            return Err(format!(
                "{what} was given, but the input '{}' takes the pixels as they are (u8)",
                spec.names[0]
            ));
        }
    }
    if options.std.iter().any(|s| *s == 0.0 || !s.is_finite()) || options.mean.iter().any(|m| !m.is_finite()) {
        return Err(format!("mean {:?} and std {:?}: expected numbers, std not 0", options.mean, options.std));
    }
    let at = if layout == Layout::Nchw { 2 } else { 1 };
    let of = |d: &Dim| d.as_const().and_then(|n| usize::try_from(n).ok());
    let fixed = [of(&meta.shape[at]), of(&meta.shape[at + 1])];
    if let Some(crop) = options.crop
        && fixed.iter().zip(crop).any(|(f, c)| c == 0 || f.is_some_and(|f| f != c))
    {
        return Err(format!("crop {}x{} for the input '{}' of {}", crop[0], crop[1], spec.names[0], shown()));
    }
    let size = options.crop.or(if let [Some(h), Some(w)] = fixed { Some([h, w]) } else { None });
    Ok(Wanted { layout, channels, size, dtype: meta.dtype })
}

/// Scales and crops. Sizes and offsets are rounded as Pillow and torchvision do.
fn prepare(im: DynamicImage, want: &Wanted, options: &ImageOptions) -> std::result::Result<DynamicImage, String> {
    let (w, h) = (f64::from(im.width()), f64::from(im.height()));
    let scale = match (options.resize, want.size) {
        (Some(short), _) => short as f64 / w.min(h),
        (None, Some([ch, cw])) => (ch as f64 / h).max(cw as f64 / w),
        (None, None) => 1.0,
    };
    let scaled = |n: f64| (n * scale).round_ties_even().clamp(1.0, 65535.0) as u32;
    let (sw, sh) = (scaled(w), scaled(h));
    let same = (sw, sh) == (im.width(), im.height());
    let im = if same { im } else { im.resize_exact(sw, sh, FilterType::Triangle) };
    let Some([ch, cw]) = want.size else { return Ok(im) };
    let fits = u32::try_from(cw).ok().filter(|n| *n <= sw).zip(u32::try_from(ch).ok().filter(|n| *n <= sh));
    let (cw, ch) = fits.ok_or_else(|| {
        format!("is {sw}x{sh} after resizing, too small for a crop of {cw}x{ch}; resize to a greater length")
    })?;
    Ok(im.crop_imm((sw - cw) / 2, (sh - ch) / 2, cw, ch))
}

fn tensor(pixels: &[u8], want: &Wanted, options: &ImageOptions, h: usize, w: usize) -> Tensor {
    let c = want.channels;
    let at = |list: &[f32], k: usize, default: f32| list.get(k).or(list.first()).copied().unwrap_or(default);
    let (shape, order): ([usize; 4], Vec<usize>) = match want.layout {
        Layout::Nhwc => ([1, h, w, c], (0..pixels.len()).collect()),
        Layout::Nchw => ([1, c, h, w], (0..c).flat_map(|k| (0..h * w).map(move |p| p * c + k)).collect()),
    };
    if want.dtype == DType::U8 {
        return Tensor::new(&shape, order.into_iter().map(|i| pixels[i]).collect::<Vec<u8>>());
    }
    let scaled =
        |i: usize| (f32::from(pixels[i]) / 255.0 - at(&options.mean, i % c, 0.0)) / at(&options.std, i % c, 1.0);
    Tensor::new(&shape, order.into_iter().map(scaled).collect::<Vec<f32>>())
}
