//! Packing: on which node a member goes so that as few GPUs as possible end up idle for good.
//!
//! A GPU stays idle for good when nothing that is to be expected can use what is left of it: too little is left, or its node's CPUs are used
//! up. Weng et al. ("Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent", USENIX ATC 2023) measure
//! this by how much of a node's idle GPUs the next request, drawn from the frequent classes of requests, could not use, and place where that
//! measure grows least. That looks one request ahead, and takes what the next request cannot use for lost, though the one after it may.
//!
//! Here the question is the one that counts: how much of this GPU will still be idle when nothing fits any more? The answer is learned. The
//! situation of a GPU is what is left of it, how many CPUs its node has for each idle GPU, and how many it has at all; for every situation
//! [`Prices`] hold what is expected to stay idle. They begin as the paper's measure ([`Prices::expecting`]) and are corrected by rehearsals
//! ([`Prices::learned`]): arrivals as they might come are packed onto the nodes under the prices of the moment, and each situation that was
//! met is priced by the mean of what stayed idle of it, until prices and packing agree. This is approximate policy iteration (Bertsekas and
//! Tsitsiklis, "Neuro-Dynamic Programming", 1996) with a table for each GPU and Monte Carlo estimates; a node's price is the sum over its
//! GPUs. Placing is then as simple as in the paper: the node and GPUs where the price grows least, ties by best fit.
//!
//! What else is different, and why:
//! - all classes count, those of many GPUs too; the paper's list of the most frequent 95 % has none of them on its own trace, and keeps nodes
//!   whole only because its ties go to the first in order;
//! - nothing is rounded, and ties go to the tightest node, so that the order of nodes hardly matters;
//! - sums are of integers, so that every machine says the same.
//!
//! A place is found whenever there is one: prices choose among places and never refuse. The learner knows which shapes are to be expected
//! and on which nodes, and nothing of the order in which they will come. How long a rehearsal goes on is a choice of the caller: prices of a
//! rehearsal that stops when the nodes are nearly full value what fills up soon, those of a longer one what fills up at all.
//!
//! Placing costs a score for every node that changed since the same shape was placed last, and one pass over an array of scores
//! ([`Packing`]).

mod demand;
mod host;
mod packing;
mod prices;
mod rehearsal;

pub use demand::{CLASSES_MOST, Class, Demand, Models, WHOLE, classes};
pub use host::{GPUS_MOST, GpuSet, Host};
pub use packing::{Packing, Spot};
pub use prices::Prices;
