//! Each recipe's story in its short form: keylapse loses nothing, and each weakness that the
//! documentation claims of the design by hand shows.

use recipes::recipe;
use recipes::stage::Stage;

async fn play(name: &str) {
    let recipe = recipe(name).expect("a recipe of this name");
    let stage = Stage { recipe, seed: 1, short: true, program: env!("CARGO_BIN_EXE_recipes").into() };
    let tale = (recipe.story)(stage).await.expect("a story that can be played");
    assert_eq!(tale.complaints(), [""; 0], "{tale}");
    let [_, ours] = tale.sums();
    assert!(ours.given > 0 && tale.scenes.iter().any(|scene| !scene.claims.is_empty()), "{tale}");
}

/// A test for each, and one that none is missing.
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

stories!(notice, zset, mover, list, delay, lock, rdelayed, topics, mail, check_in, cron);
