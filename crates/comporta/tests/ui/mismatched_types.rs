//! A connector joins a port to a stage that takes what the port carries.
use comporta::App;

fn main() {
    let app = App::new("mismatched");
    let numbers = app.source("numbers", || 0..3u64);
    let words = app.sink("words", |_: String| {});
    app.connect(numbers, words);
}
