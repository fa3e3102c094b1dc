//! `rpcprobe report DIR`

use anyhow::Result;

use crate::cli::ReportArgs;

pub fn report(args: ReportArgs) -> Result<i32> {
    let dir = super::open(&args.dir)?;
    let stdout = std::io::stdout();
    let style = super::style(&stdout);
    super::write_report(&mut std::io::BufWriter::new(stdout.lock()), &dir, args.json, style)?;
    Ok(0)
}
