//! Makes captchas black and white, a first step towards reading them. The modules follow an image
//! on its way:
//!
//! | module | what it does |
//! |---|---|
//! | [`draw`] | makes captchas up: characters ([`glyphs`]), lines, specks |
//! | [`picture`] | the pixels that travel, and how files become pixels and pixels files |
//! | [`treat`] | the five treatments between loading and saving |
//! | [`files`] | finds, reads and writes files; a file is there whole or not at all |
//! | [`plain`] | all seven steps in one loop, and once more by definition, to compare with |
//! | [`report`] | counts, compares if asked to, and says at the end what was done |
//! | [`program`] | joins the stages |
//!
//! `draw`, `picture`, `treat` and `plain` know nothing of stages: a benchmark may call them.

pub mod draw;
pub mod glyphs;
pub mod picture;
pub mod treat;
pub mod files;
pub mod plain;
pub mod report;
pub mod program;
