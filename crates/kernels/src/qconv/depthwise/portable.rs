//! The general depthwise kernel in plain Rust.
#![allow(unsafe_code, reason = "taps are read through their addresses")]

use super::{Depthwise, Pixel};
use crate::qconv::pack::LANES;
use crate::qconv::portable::store;

impl Depthwise {
    /// # Safety
    /// The taps and the output are valid for all channels.
    pub(super) unsafe fn pixel_portable(&self, p: &Pixel<'_>) {
        for b in &self.blocks {
            // SAFETY: within `width`, every tap, the output and the residual have the block's channels.
            unsafe {
                let columns = self.columns(b);
                let mut acc: [i32; LANES] = columns.bias.cast::<[i32; LANES]>().read_unaligned();
                for (t, tap) in p.taps.iter().enumerate() {
                    let x = std::slice::from_raw_parts((*tap as *const u8).add(b.channel), b.width);
                    let w = &self.weights[b.start + t * LANES..][..b.width];
                    for ((acc, x), w) in acc.iter_mut().zip(x).zip(w) {
                        *acc = acc.wrapping_add(i32::from(*x) * i32::from(*w));
                    }
                }
                let r = p.r.wrapping_add(b.channel);
                store(&acc, &columns, 0, &self.epilogue, p.y.add(b.channel * p.size), r);
            }
        }
    }
}
