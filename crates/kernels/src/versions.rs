//! One body, compiled for each instruction set.

/// Defines `name(isa, args…)`, which runs `body(args…)` compiled with the instruction set's features.
///
/// The body is a safe `#[inline(always)]` function of plain Rust that the compiler vectorises. Rust neither
/// contracts `a * b + c` nor reorders sums, so that all versions give the same bits.
macro_rules! versions {
    ($(#[$doc:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) => $body:path) => {
        $(#[$doc])*
        #[allow(unsafe_code, reason = "calls of functions with target features, behind the instruction set's token")]
        #[allow(clippy::too_many_arguments, reason = "the operands of a loop")]
        $vis fn $name(isa: $crate::Isa, $($arg: $ty),*) {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
            fn avx512($($arg: $ty),*) {
                $body($($arg),*);
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2($($arg: $ty),*) {
                $body($($arg),*);
            }
            match isa.level() {
                // SAFETY: the token proves that the machine has the features.
                #[cfg(target_arch = "x86_64")]
                $crate::Level::Avx512 => unsafe { avx512($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                $crate::Level::Avx2 | $crate::Level::AvxVnni => unsafe { avx2($($arg),*) },
                _ => $body($($arg),*),
            }
        }
    };
}
pub(crate) use versions;
