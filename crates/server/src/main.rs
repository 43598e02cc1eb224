//! The command line of tollgate.

fn main() {}
