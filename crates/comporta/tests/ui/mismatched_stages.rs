//! The same between two stages.
use comporta::App;

fn main() {
    let app = App::new("mismatched");
    let lengths = app.map("lengths", |word: String| word.len());
    let words = app.sink("words", |_: String| {});
    app.connect(lengths, words);
}
