//! A handler is not async.
use comporta::App;

fn main() {
    let app = App::new("async");
    app.sink("sink", async |_: u64| {});
}
