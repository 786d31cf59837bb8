//! Watches the access log of a web server. The modules follow a line on its way:
//!
//! | module | what it does |
//! |---|---|
//! | [`generate`] | makes a log up: visitors, scanners, break-ins, rubbish |
//! | [`parse`] | one line of the combined log format |
//! | [`batch`] | lines that were read, and a window of them, shared by the stages that look at it |
//! | [`persist`] | writes windows into segment files |
//! | [`correlate`] | sessions and scans of a window; `report` adds the windows up |
//! | [`alarm`] | `filter` picks suspicious entries, `alarm` raises alarms |
//! | [`show`] | prints alarms as they come and a digest at the end |
//! | [`plain`] | the same results by one loop, to compare with |
//! | [`program`] | joins the stages |

pub mod generate;
pub mod parse;
pub mod batch;
pub mod persist;
pub mod correlate;
pub mod alarm;
pub mod show;
pub mod plain;
pub mod program;
