"""bermo jobs: a recipe's runs as commands for any engine, and how far each is."""

import json
from dataclasses import dataclass

from bermo.fields import option
from bermo.verbs.recipe import RecipeOptions, read_recipe
from bermo.verbs.verb import Verb


@dataclass(frozen=True, kw_only=True)
class JobsOptions:
    """Which runs, and how they are printed."""

    what: RecipeOptions
    json: bool = option(False, "one JSON object a line")


def run(options: JobsOptions) -> int:
    from bermo.jobs.job import job_state, jobs_of
    from bermo.runs.command import shown

    for job in jobs_of(*read_recipe(options.what)):
        state, command = job_state(job), shown(job.words)
        if options.json:
            facts = {"name": job.name, "state": state, "folder": str(job.folder), "needs": job.needs}
            print(json.dumps(facts | {"command": command, "log": str(job.log)}))
        else:
            print(f"{state:<8}  {job.folder}  {command}")
    return 0


VERB = Verb(help="a recipe's runs as commands, and how far each is", options=JobsOptions, run=run)
