//! Events move between threads.
use std::rc::Rc;

use comporta::App;

fn main() {
    let app = App::new("rc");
    app.sink("sink", |_: Rc<u64>| {});
}
