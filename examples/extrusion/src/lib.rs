//! A riser, the pipe that hangs from an oil platform to the seabed, drawn step by step.
//!
//! The modules stand in the order in which a step passes them:
//!
//! 1. [`riser`]: what a step is, and the file it is read from; [`generate`] makes steps up.
//! 2. [`reader`]: the source; cuts steps into segments, and never runs far ahead of the renderer.
//! 3. [`frame`]: a frame carried along the pipe without twist.
//! 4. [`extrude`]: the parallel stage; turns a segment into the faces of a prism.
//! 5. [`camera`]: where a point in space is seen in the picture, and how light falls on it.
//! 6. [`renderer`]: the stateful stage; puts steps together, in order, and forgets them.
//! 7. [`picture`]: the text of one picture, and of the page that plays them.
//!
//! [`program`] joins them.

pub mod riser;
pub mod generate;
pub mod reader;
pub mod frame;
pub mod extrude;
pub mod camera;
pub mod renderer;
pub mod picture;
pub mod program;
