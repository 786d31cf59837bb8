//! Medians, paired ratios and their confidence intervals, which `comporta-stats` has.

pub(crate) use comporta_stats::{Dice, Ratio, median, quantile};
