//! Runs each story in its short form. keylapse must lose no job, and each weakness that the documentation
//! claims of a design by hand must appear.

use recipes::recipe;
use recipes::stage::Stage;

async fn play(name: &str) {
    let recipe = recipe(name).expect("a recipe of this name");
    let stage = Stage { recipe, seed: 1, short: true, program: env!("CARGO_BIN_EXE_recipes").into() };
    let results = (recipe.story)(stage).await.expect("the story runs");
    assert_eq!(results.complaints(), [""; 0], "{results}");
    let [_, ours] = results.sums();
    assert!(ours.given > 0 && results.scenes.iter().any(|scene| !scene.claims.is_empty()), "{results}");
}

/// Defines a test for each recipe, and a test that no recipe is missing.
macro_rules! stories {
    ($($name:ident),* $(,)?) => {
        $(#[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            play(stringify!($name)).await;
        })*

        #[test]
        fn each_recipe_has_its_test() {
            let recipes: Vec<_> = recipes::RECIPES.iter().map(|recipe| recipe.name).collect();
            assert_eq!([$(stringify!($name)),*], recipes[..]);
        }
    };
}

stories!(
    notice,
    orders,
    worker_queue,
    fifo_queue,
    delay_queue,
    held_lock,
    redisson,
    many_topics,
    priority_queue,
    streaks,
    cron
);
