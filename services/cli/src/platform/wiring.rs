//! The two services whose stores and clocks need more than a line.
