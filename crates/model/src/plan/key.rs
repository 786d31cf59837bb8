//! Keys and strings as a plan file spells them, which is TOML.

/// Returns a string as TOML spells it.
#[must_use]
pub fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' => out += "\\\"",
            '\\' => out += "\\\\",
            '\n' => out += "\\n",
            '\t' => out += "\\t",
            c if c.is_control() => out += &format!("\\u{:04X}", u32::from(c)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Returns a name as TOML spells it in a key: quoted where it must be.
///
/// ```
/// use comporta_model::plan::bare;
/// assert_eq!((bare("take").as_str(), bare("take.r").as_str()), ("take", "\"take.r\""));
/// ```
#[must_use]
pub fn bare(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if !name.is_empty() && name.chars().all(plain) { name.to_owned() } else { quoted(name) }
}
