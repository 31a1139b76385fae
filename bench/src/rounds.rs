//! Runs rounds: systems A, B, C, then A, B, C again. Cases that mostly wait run A, B and C at the same time.

use std::time::Instant;

use tokio::task::JoinSet;

use crate::measures::{self, Made};
use crate::{Case, Fault, Measured, System};

/// Runs a case on all systems that take part in it.
///
/// # Errors
/// If there is no server, or a system cannot be started at all.
pub async fn run(case: &Case, systems: &[System], rounds: usize) -> Result<Vec<Measured>, Fault> {
    let taking_part: Vec<_> = systems.iter().filter(|system| case.who.includes(system.folder())).collect();
    let mut all: Vec<_> = taking_part.iter().map(|system| Measured::new(case, system)).collect();
    for _ in 0..case.rounds.unwrap_or(rounds) {
        if case.side_by_side {
            side_by_side(case, &taking_part, &mut all).await?;
        } else {
            in_turn(case, &taking_part, &mut all).await?;
        }
    }
    Ok(all)
}

async fn in_turn(case: &Case, systems: &[&System], all: &mut [Measured]) -> Result<(), Fault> {
    for (system, measured) in systems.iter().zip(all) {
        if measured.has_it {
            measured.add(make(case, system).await?);
        }
    }
    Ok(())
}

async fn side_by_side(case: &Case, systems: &[&System], all: &mut [Measured]) -> Result<(), Fault> {
    let mut running = JoinSet::new();
    for (place, system) in systems.iter().enumerate().filter(|(place, _)| all[*place].has_it) {
        let (case, system) = (case.clone(), (*system).clone());
        running.spawn(async move { (place, make(&case, &system).await) });
    }
    while let Some(ended) = running.join_next().await {
        let (place, made) = ended?;
        all[place].add(made?);
    }
    Ok(())
}

/// Makes one run, and prints how long it took.
async fn make(case: &Case, system: &System) -> Result<Made, Fault> {
    let started = Instant::now();
    let made = measures::make(case, system).await?;
    let outcome = match &made {
        Made::Figures(_) => "",
        Made::HasNot => return Ok(made),
        Made::Failed(_) => ", FAILED",
    };
    eprintln!("{case}: {} took {:.1} s{outcome}", system.folder(), started.elapsed().as_secs_f64());
    Ok(made)
}
