//! Whether a worker ran out of memory, and of which: from what the kernel did to it and from what it said last. Pure.

use crate::shim::{EndedBy, WorkerExit};
use footplate_events::facts::MemoryKind;

/// What the text of an accelerator's allocator, or of its driver, has in it (PyTorch on CUDA and ROCm, JAX, TensorFlow, CuPy). Lower case.
const ACCELERATOR: [&str; 9] = [
    "cuda out of memory",
    "hip out of memory",
    "xpu out of memory",
    "cuda error: out of memory",
    "cuda_error_out_of_memory",
    "cudaerrormemoryallocation",
    "hiperroroutofmemory",
    "resource_exhausted: out of memory",
    "oom when allocating tensor",
];

/// The class names of exceptions that say it, as a traceback or a record of it begins with them: nothing else has to follow.
const EXCEPTIONS: [(&str, MemoryKind); 5] = [
    ("OutOfMemoryError", MemoryKind::Accelerator),
    ("torch.OutOfMemoryError", MemoryKind::Accelerator),
    ("torch.cuda.OutOfMemoryError", MemoryKind::Accelerator),
    ("cupy.cuda.memory.OutOfMemoryError", MemoryKind::Accelerator),
    ("MemoryError", MemoryKind::Machine),
];

/// How a parent tells that a child of its own was killed with KILL (PyTorch's loaders, torchrun). Lower case.
const CHILD_KILLED: [&str; 4] = ["is killed by signal: killed", "sigkill", "signal 9", "exitcode: -9"];

/// Which memory a worker ran out of. `kernel_killed`: the kernel killed something of its tree for want of memory.
pub(crate) fn kind(worker: &WorkerExit, kernel_killed: bool, said: &str) -> Option<MemoryKind> {
    if worker.succeeded() || worker.ended_by != EndedBy::Itself {
        return None;
    }
    let lower = said.to_lowercase();
    if kernel_killed && (was_killed(worker) || CHILD_KILLED.iter().any(|words| lower.contains(words))) {
        return Some(MemoryKind::Machine);
    }
    let is_class = |class: &str| said.trim_start().strip_prefix(class).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'));
    let exception = EXCEPTIONS.iter().find(|(class, _)| is_class(class)).map(|(_, kind)| *kind);
    exception.or_else(|| ACCELERATOR.iter().any(|words| lower.contains(words)).then_some(MemoryKind::Accelerator))
}

/// Whether it died of KILL; 137 is a shell's way to say that what it ran did.
pub(crate) fn was_killed(worker: &WorkerExit) -> bool {
    worker.signal == Some(9) || worker.code == Some(137)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(code: Option<i32>, signal: Option<i32>, ended_by: EndedBy) -> WorkerExit {
        WorkerExit { rank: 0, code, signal, launch_error: None, at_ns: 0, ended_by }
    }

    #[test]
    fn the_words_of_the_frameworks_are_known() {
        let failed = ended(Some(1), None, EndedBy::Itself);
        let gpu = [
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.25 GiB",
            "torch.cuda.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 MiB",
            "OutOfMemoryError: CUDA out of memory.",
            "RuntimeError: CUDA error: out of memory",
            "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 274877906944 bytes.",
            "ResourceExhaustedError: OOM when allocating tensor with shape[64,1024]",
        ];
        for said in gpu {
            assert_eq!(kind(&failed, false, said), Some(MemoryKind::Accelerator), "{said}");
        }
        assert_eq!(kind(&failed, false, "MemoryError"), Some(MemoryKind::Machine));
        assert_eq!(kind(&failed, false, "MemoryError: Unable to allocate 1.0 TiB"), Some(MemoryKind::Machine));
        for said in ["", "ValueError: loss is NaN", "MemoryErrors are counted below", "OutOfMemoryErrorHandler failed"] {
            assert_eq!(kind(&failed, false, said), None, "{said}");
        }
    }

    #[test]
    fn the_kernels_kill_counts_for_who_was_killed_or_lost_a_child_by_it() {
        let killed = ended(None, Some(9), EndedBy::Itself);
        assert_eq!(kind(&killed, true, ""), Some(MemoryKind::Machine));
        assert_eq!(kind(&ended(Some(137), None, EndedBy::Itself), true, ""), Some(MemoryKind::Machine));
        // Somebody else's KILL, or a fault that has nothing to do with a helper's death.
        assert_eq!(kind(&killed, false, ""), None);
        assert_eq!(kind(&ended(Some(1), None, EndedBy::Itself), true, "ValueError: loss is NaN"), None);
        let loader = "RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed.";
        assert_eq!(kind(&ended(Some(1), None, EndedBy::Itself), true, loader), Some(MemoryKind::Machine));
    }

    #[test]
    fn whom_the_platform_ended_ran_out_of_nothing() {
        for by in [EndedBy::Stop, EndedBy::Peer, EndedBy::Lease, EndedBy::ShimLost] {
            assert_eq!(kind(&ended(None, Some(9), by), true, "CUDA out of memory"), None);
        }
        assert_eq!(kind(&ended(Some(0), None, EndedBy::Itself), true, "CUDA out of memory"), None);
    }
}
