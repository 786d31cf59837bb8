//! What does not compile, and that the compiler says why in words of this field.
//! After a change of messages: `TRYBUILD=overwrite cargo test -p comporta --features cli,scheduler --test it compile_fail`.

#[test]
#[cfg_attr(
    not(all(feature = "cli", feature = "scheduler")),
    ignore = "how rustc names a trait depends on the crates there are: with all features, as in `make test`"
)]
fn mistakes_are_refused_by_the_compiler_with_readable_messages() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
