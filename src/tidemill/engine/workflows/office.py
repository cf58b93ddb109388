"""What runs only in office, for one term: the desk, the scheduler's loop, schedules, triggers, retention."""

from collections.abc import Callable

from tidemill.engine.wakeups import Alarm
from tidemill.engine.workflows.crew import Crew
from tidemill.engine.workflows.desk import Desk
from tidemill.engine.workflows.environment import Environment
from tidemill.engine.workflows.library import Library
from tidemill.engine.workflows.pollers import FindTrigger, Pollers
from tidemill.engine.workflows.scheduler import Scheduler
from tidemill.engine.workflows.schedules import Schedules
from tidemill.engine.workflows.starting import Starter


class Office:
    """A term, with everything that is done in it."""

    def __init__(
        self,
        environment: Environment,
        desk: Desk,
        library: Library,
        crew: Crew,
        starter: Starter,
        find_trigger: FindTrigger,
        alarm: Alarm,
    ) -> None:
        admissions = desk.allotment.admissions
        schedules = Schedules(environment, library, starter, admissions)
        self._pollers = Pollers(
            environment, library, find_trigger, starter, lambda tenant, name: (tenant, name) in admissions.paused
        )
        self.desk = desk
        self.scheduler = Scheduler(environment, library, desk, crew, schedules, self._pollers, alarm)
        self._environment = environment
        self._crew = crew
        self._starter = starter

    async def run(self, settled_in: Callable[[], None]) -> None:
        """Serve until cancelled; `settled_in` is called after the first full pass."""
        self._crew.report_to(self.desk, self.scheduler.stir)
        self._starter.desk = self.desk
        self._environment.figures.read("scheduler_leader", 1)
        try:
            await self.scheduler.step()
            settled_in()
            await self.scheduler.run()
        finally:
            self.close()
            await self._pollers.close()

    def close(self) -> None:
        """Leave everything as it is."""
        self.desk.close()
        self._crew.report_to(None)
        self._starter.desk = None
        self._environment.figures.read("scheduler_leader", 0)
