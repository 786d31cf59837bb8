//! An HTTP endpoint whose requests run through a graph.
//!
//! 1. [`quotes`]: the graph: a gateway, and the stages that work on a request.
//! 2. [`http`]: requests in, replies out, and what each refusal means in HTTP.
//! 3. [`server`]: the server, as a resource of the program: it starts with it and ends after it.
//! 4. [`program`]: all of it joined, and the command line.

pub mod quotes;
pub mod http;
pub mod server;
pub mod program;
