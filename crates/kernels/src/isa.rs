//! Instruction sets as tokens: to hold one is the proof that the machine has it.

/// An instruction set that kernels are written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Plain Rust: runs everywhere.
    Portable,
    /// AVX2, FMA and F16C, 256-bit.
    Avx2,
    /// AVX2 with `vpdpbusd` of 256 bits, be it AVX-VNNI's or that of AVX-512 VL and VNNI.
    AvxVnni,
    /// AVX-512 F, BW, DQ, VL, VNNI and VBMI, 512-bit.
    Avx512,
}

impl Level {
    /// All levels, plainest first.
    pub const ALL: [Level; 4] = [Level::Portable, Level::Avx2, Level::AvxVnni, Level::Avx512];

    /// The name that `CLEAVE_ISA` takes: `portable`, `avx2`, `avxvnni` or `avx512`.
    pub fn name(self) -> &'static str {
        match self {
            Level::Portable => "portable",
            Level::Avx2 => "avx2",
            Level::AvxVnni => "avxvnni",
            Level::Avx512 => "avx512",
        }
    }

    /// Whether this machine has the instructions.
    pub fn available(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        match self {
            Level::Portable => true,
            Level::Avx2 => {
                is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
            }
            Level::AvxVnni => Level::Avx2.available() && (evex_vnni() || is_x86_feature_detected!("avxvnni")),
            Level::Avx512 => {
                Level::AvxVnni.available()
                    && evex_vnni()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vbmi")
                    && is_x86_feature_detected!("avx512vbmi2")
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            self == Level::Portable
        }
    }
}

/// Whether the machine has `vpdpbusd` of 256 bits as AVX-512 encodes it.
#[cfg(target_arch = "x86_64")]
fn evex_vnni() -> bool {
    is_x86_feature_detected!("avx512vnni") && is_x86_feature_detected!("avx512vl")
}

/// Whether kernels of [`Level::AvxVnni`] take AVX-512's encoding, or else AVX-VNNI's.
#[cfg(target_arch = "x86_64")]
pub(crate) fn takes_evex() -> bool {
    #[cfg(test)]
    if vex::PREFERRED.load(std::sync::atomic::Ordering::Relaxed) {
        return false;
    }
    evex_vnni()
}

/// Where a machine has both encodings, tests take either.
#[cfg(all(test, target_arch = "x86_64"))]
pub(crate) mod vex {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    pub(super) static PREFERRED: AtomicBool = AtomicBool::new(false);

    /// Runs a test with AVX-VNNI's encoding, if the machine has it; those that run beside it take it too.
    pub(crate) fn preferred(test: impl Fn()) {
        if is_x86_feature_detected!("avxvnni") {
            PREFERRED.store(true, Relaxed);
            test();
            PREFERRED.store(false, Relaxed);
        }
    }
}

/// A level that this machine has; the only constructors check it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isa(Level);

impl Isa {
    /// The level, if the machine has it.
    pub fn new(level: Level) -> Option<Isa> {
        level.available().then_some(Isa(level))
    }

    /// Plain Rust.
    pub fn portable() -> Isa {
        Isa(Level::Portable)
    }

    /// The best level of this machine.
    pub fn best() -> Isa {
        Level::ALL.into_iter().rev().find_map(Isa::new).unwrap_or(Isa::portable())
    }

    /// Every level of this machine, plainest first: what a kernel is tested on.
    pub fn all() -> Vec<Isa> {
        Level::ALL.into_iter().filter_map(Isa::new).collect()
    }

    /// The level named by `CLEAVE_ISA`, or the best one where the variable is unset.
    ///
    /// # Errors
    /// An unknown name, or a level that the machine lacks.
    pub fn from_env() -> Result<Isa, String> {
        let Ok(name) = std::env::var("CLEAVE_ISA") else { return Ok(Isa::best()) };
        let names = Level::ALL.map(Level::name).join(", ");
        let level = Level::ALL.into_iter().find(|l| l.name() == name);
        let level = level.ok_or_else(|| format!("CLEAVE_ISA is '{name}'; expected one of {names}"))?;
        Isa::new(level).ok_or_else(|| format!("CLEAVE_ISA is '{name}', which this machine does not have"))
    }

    /// The level of this token.
    pub fn level(self) -> Level {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_has_a_level_has_those_below() {
        let all = Isa::all();
        let most = Isa::best().level();
        assert_eq!(all.last().map(|isa| isa.level()), Some(most));
        assert!(Level::ALL.is_sorted() && Level::ALL.iter().all(|l| l.available() == (*l <= most)));
    }
}
