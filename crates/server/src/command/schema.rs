//! `tollgate schema`: the JSON Schema of rule files, for editors.

use std::io::Write;

use clap::Args;

/// Print the JSON Schema of rule files, for editors that complete and check them
///
/// Most editors understand a first line in the rule file that names the schema. Visual Studio Code needs the extension
/// "YAML" by Red Hat, others their YAML language server.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tollgate schema > tollgate.schema.json

  and as the first line of rules.yaml:
  # yaml-language-server: $schema=tollgate.schema.json")]
pub(crate) struct SchemaArgs {}

pub(crate) fn run(_args: &SchemaArgs, out: &mut impl Write) -> anyhow::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &tollgate_rules::json_schema()).map_err(std::io::Error::from)?;
    writeln!(out)?;
    Ok(())
}
