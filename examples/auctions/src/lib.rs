//! Which auctions are hot: query 5 of the Nexmark benchmark, in the order in which a bid goes through it.
//!
//! | module | what it does |
//! |---|---|
//! | [`generate`] | makes bids up |
//! | [`program`] | joins the stages |
//! | [`show`] | prints the hottest auctions |
//! | [`plain`] | the same by one loop, to compare with |

pub mod generate;
pub mod program;
pub mod show;
pub mod plain;
