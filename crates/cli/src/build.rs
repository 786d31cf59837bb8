//! The function that a program passes to `main`, which builds the program, optionally from its own arguments and
//! its own section of the plan.

use clap::{ArgMatches, Command};
use comporta_model::error::{Error, Result};
use comporta_runtime::App;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// A function that builds a program: `fn() -> App`, `fn(Args) -> App`, or `fn(Args, Own) -> App`,
/// each of which may return a `Result`. `Args` are its own arguments (`clap::Args`); the section
/// `[app]` of a plan is read into `Own` (`serde::Deserialize`). `Marker` is inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not build a program",
    note = "give a function of nothing, of the program's own arguments (`clap::Args`), or of these and its own section of the plan (`serde::Deserialize`); it returns an `App` or a `Result<App>`"
)]
pub trait Build<Marker> {
    /// The program's own arguments.
    type Args: clap::Args;
    /// The program's own section of a plan.
    type Own: DeserializeOwned;
    /// Builds the program. Nothing runs yet, and no source is opened.
    ///
    /// # Errors
    /// Returns an error if the program cannot be built.
    fn build(self, args: Self::Args, own: Self::Own) -> Result<App>;
}

/// The return type of such a function.
pub trait IntoApp {
    /// Returns the program.
    ///
    /// # Errors
    /// Returns an error if the program could not be built.
    fn into_app(self) -> Result<App>;
}

impl IntoApp for App {
    fn into_app(self) -> Result<App> {
        Ok(self)
    }
}

impl<E: Into<Error>> IntoApp for std::result::Result<App, E> {
    fn into_app(self) -> Result<App> {
        self.map_err(Into::into)
    }
}

/// No arguments and no section.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

impl clap::FromArgMatches for Nothing {
    fn from_arg_matches(_: &ArgMatches) -> std::result::Result<Self, clap::Error> {
        Ok(Nothing {})
    }
    fn update_from_arg_matches(&mut self, _: &ArgMatches) -> std::result::Result<(), clap::Error> {
        Ok(())
    }
}

impl clap::Args for Nothing {
    fn augment_args(command: Command) -> Command {
        command
    }
    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

impl<F, R> Build<()> for F
where
    F: FnOnce() -> R,
    R: IntoApp,
{
    type Args = Nothing;
    type Own = Nothing;
    fn build(self, _: Nothing, _: Nothing) -> Result<App> {
        self().into_app()
    }
}

impl<F, R, A> Build<(A,)> for F
where
    F: FnOnce(A) -> R,
    R: IntoApp,
    A: clap::Args,
{
    type Args = A;
    type Own = Nothing;
    fn build(self, args: A, _: Nothing) -> Result<App> {
        self(args).into_app()
    }
}

impl<F, R, A, C> Build<(A, C)> for F
where
    F: FnOnce(A, C) -> R,
    R: IntoApp,
    A: clap::Args,
    C: DeserializeOwned,
{
    type Args = A;
    type Own = C;
    fn build(self, args: A, own: C) -> Result<App> {
        self(args, own).into_app()
    }
}
