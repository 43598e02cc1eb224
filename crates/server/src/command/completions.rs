//! `tollgate completions`: scripts that let shells complete commands and options.

use std::io::Write;

use clap::{Args, Command};
use clap_complete::Shell;

/// Print a script that lets a shell complete commands and options
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  source <(tollgate completions bash)

  To keep it (zsh needs ~/.zfunc in $fpath):
  tollgate completions bash >> ~/.bash_completion
  tollgate completions zsh > ~/.zfunc/_tollgate
  tollgate completions fish > ~/.config/fish/completions/tollgate.fish")]
pub(crate) struct CompletionsArgs {
    /// For which shell
    shell: Shell,
}

pub(crate) fn run(args: &CompletionsArgs, mut command: Command, out: &mut impl Write) -> anyhow::Result<()> {
    let name = command.get_name().to_owned();
    // Into memory first: the generator takes a failed write for a bug.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, name, &mut script);
    out.write_all(&script)?;
    Ok(())
}
