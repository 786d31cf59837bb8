//! The names of keys, for people: those of the usual types are known without being asked for.
//! Used by `mod.rs`. It calls no code of the program.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;

/// The name of a key, if it is of a usual type.
pub(super) fn usual(key: &dyn Any) -> Option<String> {
    macro_rules! show {
        ($($type:ty),* $(,)?) => {
            $(if let Some(key) = key.downcast_ref::<$type>() {
                return Some(key.to_string());
            })*
        };
    }
    show!(String, &'static str, Arc<str>, Box<str>, Cow<'static, str>, char, bool);
    show!(u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize);
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_texts_have_names_and_others_have_none() {
        assert_eq!(usual(&7_u64).as_deref(), Some("7"));
        assert_eq!(usual(&"ann".to_owned()).as_deref(), Some("ann"));
        assert_eq!(usual(&"bob").as_deref(), Some("bob"));
        assert_eq!(usual(&(1, 2)), None);
    }
}
