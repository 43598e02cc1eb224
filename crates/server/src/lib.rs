//! The service and the command line of tollgate: arguments in, exit codes out.
//!
//! Exit codes: 0 done, 1 something failed or is wrong, 2 the arguments make no sense.
//!
//! A program may also run the service inside itself: see [`serve::Server`].

mod cli;
mod command;
mod demo;
#[doc(hidden)]
pub mod fuzzing;
mod gate;
mod gateway;
mod protocol;
/// The service.
pub mod serve;
mod terminal;

pub use cli::main;
pub use gate::GateClock;
