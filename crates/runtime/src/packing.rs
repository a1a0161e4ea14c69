//! Packing of weights, behind lowering: the threads of a session share it out, and sessions of one model among
//! themselves.

use crate::error::{Result, RuntimeError};
use crate::kernel::{Kernel, PointwiseKernel, ThenKernel};
use crate::steps::{Stage, Step};
use cleave_ir::{NodeId, Tensor};
use cleave_kernels::conv_f32::ConvF32;
use cleave_kernels::qconv::QConv;
use cleave_kernels::{KernelError, ThreadPool};
use indexmap::IndexMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

/// Packed weights of a convolution.
#[derive(Clone, Default)]
pub(crate) enum Packed {
    /// None yet.
    #[default]
    Nothing,
    /// A float one.
    Float(Box<ConvF32>),
    /// A quantized one, and the levels that it was packed from.
    Quantized(Box<QConv>, Tensor),
}

/// Packed weights by node: they serve every shape that a model is compiled for, and every session for it.
#[derive(Clone, Default)]
pub(crate) struct PackedWeights(Arc<Mutex<IndexMap<String, Shared>>>);

/// One node's; locked while they are packed.
pub(crate) type Shared = Arc<Mutex<Packed>>;

impl PackedWeights {
    /// Those of a node.
    pub(crate) fn of(&self, node: &str) -> Shared {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(node.to_owned()).or_default())
    }

    /// Those that another graph may have, too: such as tell what they were packed from.
    pub(crate) fn for_another(&self) -> PackedWeights {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let one = |(name, shared): (&String, &Shared)| match &*locked(shared, true)? {
            Packed::Quantized(conv, levels) => {
                Some((name.clone(), Arc::new(Mutex::new(Packed::Quantized(conv.clone(), levels.clone())))))
            }
            _ => None,
        };
        PackedWeights(Arc::new(Mutex::new(all.iter().filter_map(one).collect())))
    }
}

/// The weights, none if another thread has them and is not to be waited for.
pub(crate) fn locked(shared: &Shared, wait: bool) -> Option<MutexGuard<'_, Packed>> {
    if wait {
        return Some(shared.lock().unwrap_or_else(PoisonError::into_inner));
    }
    match shared.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(e)) => Some(e.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Makes a kernel. None if its weights are being packed by another session, and `wait` does not say to wait.
pub(crate) type Pack = Box<dyn Fn(bool) -> Option<Result<Box<dyn Kernel>>> + Send + Sync>;

/// A kernel, or how it is made once all steps are known.
pub(crate) enum Making {
    /// It is there.
    Made(Box<dyn Kernel>),
    /// Its weights have to be packed.
    Packing(Box<Packing>),
}

/// A kernel that is made of packed weights.
pub(crate) struct Packing {
    /// The convolution.
    node: NodeId,
    /// How.
    pack: Pack,
    /// What runs on its result: bytes of that, and a program.
    then: Option<(Vec<Range<usize>>, PointwiseKernel)>,
}

impl Making {
    /// That of a convolution.
    pub(crate) fn packing(
        node: NodeId,
        pack: impl Fn(bool) -> Option<Result<Box<dyn Kernel>>> + Send + Sync + 'static,
    ) -> Making {
        Making::Packing(Box::new(Packing { node, pack: Box::new(pack), then: None }))
    }

    /// The kernel, and a program behind it over parts of the value that it writes.
    pub(crate) fn then(self, parts: Vec<Range<usize>>, then: PointwiseKernel) -> Making {
        match self {
            Making::Made(first) => Making::Made(Box::new(ThenKernel { first, parts, then })),
            Making::Packing(p) => Making::Packing(Box::new(Packing { then: Some((parts, then)), ..*p })),
        }
    }
}

impl<K: Kernel + 'static> From<Box<K>> for Making {
    fn from(kernel: Box<K>) -> Making {
        Making::Made(kernel)
    }
}

/// The steps with all kernels made, on all threads. Or the convolutions of which the sums may leave an i32: they have to
/// be others.
///
/// # Errors
/// The first that cannot be made.
pub(crate) fn make(
    stages: Vec<Stage<Making>>,
    pool: &ThreadPool,
) -> Result<std::result::Result<Vec<Stage>, Vec<NodeId>>> {
    let packs: Vec<&Pack> = stages.iter().filter_map(pack_of).collect();
    let made: Vec<OnceLock<Result<Box<dyn Kernel>>>> = packs.iter().map(|_| OnceLock::new()).collect();
    // What another session is packing is left to it, until there is nothing else to do.
    for wait in [false, true] {
        let next = AtomicUsize::new(0);
        pool.run(pool.threads(), &|_| {
            while let at = next.fetch_add(1, SeqCst)
                && let Some(pack) = packs.get(at)
            {
                if made[at].get().is_none()
                    && let Some(kernel) = pack(wait)
                {
                    let _ = made[at].set(kernel);
                }
            }
        });
    }
    let (mut made, mut overflows) = (made.into_iter().filter_map(OnceLock::into_inner), vec![]);
    let mut done = vec![];
    for stage in stages {
        let Step { kernel, reads, writes, mut planned } = match stage {
            Stage::Run(step) => step,
            Stage::Tap(index, value) => {
                done.push(Stage::Tap(index, value));
                continue;
            }
        };
        let kernel = match kernel {
            Making::Made(kernel) => kernel,
            Making::Packing(packing) => match (made.next(), packing.then) {
                (Some(Ok(kernel)), None) => kernel,
                (Some(Ok(first)), Some((parts, then))) => Box::new(ThenKernel { first, parts, then }),
                (Some(Err(RuntimeError::Kernel(KernelError::Overflow { .. }))), _) => {
                    overflows.push(packing.node);
                    continue;
                }
                (Some(Err(e)), _) => return Err(e),
                (None, _) => unreachable!("invariant: the second turn waits for every kernel"),
            },
        };
        planned.kernel = kernel.name();
        done.push(Stage::Run(Step { kernel, reads, writes, planned }));
    }
    Ok(if overflows.is_empty() { Ok(done) } else { Err(overflows) })
}

fn pack_of(stage: &Stage<Making>) -> Option<&Pack> {
    match stage {
        Stage::Run(Step { kernel: Making::Packing(packing), .. }) => Some(&packing.pack),
        _ => None,
    }
}
