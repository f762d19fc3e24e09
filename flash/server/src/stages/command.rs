// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flash stages`.

use std::io::Write;

use anyhow::Result;
use clap::{Args, ValueEnum};
use kit_console::Allowed;
use serde_json::{json, Value};

use super::{Answering, Delivery, Opening, Residency, Stage, Starting, NO_STAGES, STAGES};

/// Options of `flash stages`.
#[derive(Args)]
pub struct StagesOptions {
    /// Output format
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// # Errors
///
/// Standard output cannot be written.
pub fn run(options: &StagesOptions) -> Result<()> {
    kit_console::print(Allowed::Text, |out| match options.format {
        Format::Text => text(out),
        Format::Json => {
            let stages: Vec<Value> = STAGES.iter().map(json).collect();
            writeln!(
                out,
                "{:#}",
                json!({ "schema": "flash.stages/1", "stages": stages })
            )
        }
    })?;
    Ok(())
}

fn text(out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(out, "{:<14}{:<22}Figure 2.8, step", "stage", "sections")?;
    for stage in &STAGES {
        let Stage {
            name,
            sections,
            steps,
            does,
            removes,
            waits,
            ..
        } = stage;
        writeln!(out, "{name:<14}{sections:<22}{steps}")?;
        writeln!(
            out,
            "    {does}\n    Removes {removes}\n    Can wait: {waits}"
        )?;
    }
    writeln!(out, "\nSteps of Figure 2.8 that are no stage:")?;
    for (step, why) in NO_STAGES {
        writeln!(out, "    {step}  {why}")?;
    }
    writeln!(
        out,
        "\nThe default is {}: flash serve DIR --stage NAME",
        Stage::today().name
    )
}

fn json(stage: &Stage) -> Value {
    json!({
        "name": stage.name,
        "sections": stage.sections,
        "steps": stage.steps,
        "does": stage.does,
        "removes": stage.removes,
        "waits": stage.waits,
        "calls": stage.calls,
        "opening": match stage.opening {
            Opening::Repeated => "repeated",
            Opening::Passed => "passed",
            Opening::Cached => "cached",
        },
        "residency": match stage.residency {
            Residency::Mincore => "mincore",
            Residency::Assumed => "assumed",
            Residency::Reported => "reported",
            Residency::Told => "told",
        },
        "delivery": match stage.delivery {
            Delivery::Writev => "writev",
            Delivery::Sendfile => "sendfile",
            Delivery::Copied => "copied",
            Delivery::BySize => "by-size",
        },
        "scripts": match stage.starting {
            Starting::Forks => "forks",
            Starting::Helper => "helper",
        },
        "applications": match stage.answering {
            Answering::Relayed => "relayed",
            Answering::Direct => "direct",
        },
    })
}
