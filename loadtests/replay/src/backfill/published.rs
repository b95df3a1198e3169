//! The table of Zhang, Dai, He, Bao and Xie, "RLScheduler: an automated HPC batch job scheduler using reinforcement learning" (SC 2020),
//! as their repository prints it: the mean bounded slowdown of ten windows.

use footplate_scheduler_core::plan::Backfill;

/// One column: a trace, with or without backfill, and what is printed of FCFS, SJF and F1.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// The trace's number, from 0.
    pub trace: usize,
    /// How the authors overtake.
    pub backfill: Backfill,
    /// FCFS, SJF, F1, to the hundredth.
    pub printed: [f64; 3],
}

/// The traces, in the order of the table.
pub const TRACES: [&str; 2] = ["lublin/lublin_256.swf", "lublin/lublin_256_new2"];

/// The columns of FCFS, SJF and F1.
pub const COLUMNS: [Column; 4] = [
    Column { trace: 0, backfill: Backfill::None, printed: [7_273.77, 277.35, 258.37] },
    Column { trace: 0, backfill: Backfill::EndsBefore, printed: [235.82, 73.31, 75.07] },
    Column { trace: 1, backfill: Backfill::None, printed: [7_842.47, 787.89, 698.34] },
    Column { trace: 1, backfill: Backfill::EndsBefore, printed: [247.61, 91.99, 148.25] },
];

/// The learned policy with backfill, which is trained on the trace.
pub const LEARNED: [f64; 2] = [58.64, 118.79];

/// The best figure that is printed for a trace, of any policy.
pub fn best(trace: usize) -> f64 {
    let printed = COLUMNS.iter().filter(|column| column.trace == trace).flat_map(|column| column.printed);
    printed.fold(LEARNED[trace], f64::min)
}
