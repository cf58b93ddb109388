"""The pages of reactors: state as it changes, every command, dead letters, deep links (S-8, S-9)."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.browser.axe import violations
from tests.browser.demo_node import DemoNode, demo_node, wait_for_reactor
from tests.browser.test_connection import free_port
from tests.browser.views import open_page

PACKAGES = Path(__file__).parent / "reactors"


@dataclass(slots=True)
class Shop:
    """A node with the reactor `shop`, which fires only when a test makes it."""

    node: DemoNode
    feed_lost: Path
    api: httpx.Client

    @property
    def address(self) -> str:
        """Return the address of the page of the reactor."""
        return f"{self.node.url}/reactors/shop"

    def push(self, bid: Any, ask: float = 99.0) -> None:
        """Push a book."""
        assert self.api.post("/accumulators/book/events", json={"bid": bid, "ask": ask}).is_success

    def state(self) -> dict[str, Any]:
        """Return the state of the reactor."""
        state: dict[str, Any] = self.api.get("/reactors/shop").json()
        return state

    def firings(self) -> list[dict[str, Any]]:
        """Return the firings that are kept, newest first."""
        items: list[dict[str, Any]] = self.api.get("/reactors/shop/firings").json()["items"]
        return items


@pytest.fixture(scope="module")
def shop_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """Run the node of all tests of this file."""
    folder = tmp_path_factory.mktemp("shop")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIDEMILL_TEST_FEED_LOST", str(folder / "lost"))
        with demo_node(folder, PACKAGES) as node, httpx.Client(base_url=f"{node.url}/api/v1") as api:
            wait_for_reactor(api, "shop")
            yield Shop(node, folder / "lost", api)


@pytest.fixture
def shop(shop_node: Shop, page: Page) -> Shop:
    """Return the node with the reactor running, its feed there, and no dead letter."""
    shop_node.feed_lost.unlink(missing_ok=True)
    shop_node.api.post("/reactors/shop/commands", json={"command": "resume"})
    for letter in shop_node.api.get("/reactors/shop/dead-letters").json()["items"]:
        shop_node.api.delete(f"/reactors/shop/dead-letters/{letter['id']}")
    open_page(page, shop_node.address)
    expect(box(page, "Reactor shop, live")).to_be_visible()
    return shop_node


def box(page: Page, name: str) -> Locator:
    """Return a box of the graph."""
    return page.get_by_role("button", name=re.compile(name))


def figure(page: Page, name: str) -> Locator:
    """Return a figure of the head."""
    return page.locator("dl[aria-label=Figures] > div").filter(has=page.get_by_text(name, exact=True)).locator("dd")


def firings(page: Page) -> Locator:
    """Return the rows of the log of firings."""
    return page.get_by_role("group", name="Log of firings").get_by_role("button")


@pytest.mark.expects_errors
def test_firings_are_read_again_after_an_answer_that_failed(page: Page, shop: Shop) -> None:
    """S-9: a page whose first reading is lost shows the firings without waiting for the next one."""
    shop.push(bid=98, ask=99)
    lost: list[str] = []

    def lose_the_first(route: Route) -> None:
        if lost:
            route.continue_()
        else:
            lost.append(route.request.url)
            route.abort()

    page.route("**/reactors/shop/firings*", lose_the_first)
    open_page(page, shop.address)
    expect(firings(page).first).to_contain_text("order price")
    assert lost


def test_firings_of_the_time_of_a_slow_answer_are_read(page: Page, shop: Shop) -> None:
    """S-9: what fires while an older answer is on its way is not missed."""
    answers: list[str] = []

    def hold_the_first(route: Route) -> None:
        answer = route.fetch()
        if not answers:
            answers.append(route.request.url)
            shop.push(bid=76, ask=77)
            page.wait_for_timeout(1500)  # longer than the pause between two readings
        route.fulfill(response=answer)

    page.route("**/reactors/shop/firings*", hold_the_first)
    open_page(page, shop.address)
    expect(firings(page).first).to_contain_text("order price 77")


def test_the_route_of_the_last_firing_is_shown(page: Page, shop: Shop) -> None:
    """S-8: nodes that ran and nodes that were skipped differ, and follow the firings."""
    shop.push(bid=98, ask=99)
    expect(box(page, "Node order, ran")).to_be_visible()
    expect(box(page, "Node idle, skipped")).to_be_visible()
    shop.push(bid=100, ask=101)
    expect(box(page, "Node idle, ran")).to_be_visible()
    expect(box(page, "Node order, skipped")).to_be_visible()
    expect(firings(page).first).to_contain_text("idle too dear")


def test_each_key_of_a_keyed_reactor_has_a_cache(page: Page, shop: Shop) -> None:
    """S-8: the page shows the cache of the key that fired last, and of one that the reader names."""
    for symbol, price in [("SAP", 1.5), ("BTC", 2.5), ("SAP", 3.5)]:
        assert shop.api.post("/accumulators/quotes/events", json={"symbol": symbol, "price": price}).is_success
    open_page(page, f"{shop.node.url}/reactors/tickers")
    cache = page.get_by_role("group", name="Values in the cache")
    expect(page.get_by_role("heading", name="Cache of SAP")).to_be_visible()
    expect(cache).to_contain_text("symbol SAP price 3.5")
    page.get_by_role("searchbox", name="Key").fill("BTC")
    expect(page.get_by_role("heading", name="Cache of BTC")).to_be_visible()
    expect(cache).to_contain_text("symbol BTC price 2.5")
    expect(page).to_have_url(re.compile("key=BTC"))
    assert shop.api.post("/accumulators/quotes/events", json={"symbol": "BTC", "price": 4.5}).is_success
    expect(cache).to_contain_text("symbol BTC price 4.5")
    assert violations(page) == []


def test_the_palette_leads_from_one_reactor_to_another(page: Page, shop: Shop) -> None:
    """S-8: nothing of the reactor before stays on the page of the next one."""
    shop.push(bid=98, ask=99)
    expect(firings(page).first).to_be_visible()
    page.keyboard.press("Control+k")
    page.keyboard.type("stockroom")
    expect(page.get_by_role("option", name="stockroom reactor")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1, name="stockroom")).to_be_visible()
    expect(figure(page, "Firings")).to_contain_text("0")
    expect(firings(page)).to_have_count(0)


def test_a_lost_feed_degrades_the_reactor_and_says_why(page: Page, shop: Shop) -> None:
    """G-9: the health of the accumulator and of the reactor change on the page, with the reason."""
    shop.feed_lost.touch()
    expect(box(page, "Accumulator model, disconnected|Accumulator model, connecting")).to_be_visible()
    expect(box(page, "Reactor shop, degraded")).to_be_visible()
    expect(page.get_by_text("It fires with the last values of model.")).to_be_visible()
    shop.feed_lost.unlink()
    expect(box(page, "Reactor shop, live")).to_be_visible()
    page.get_by_role("link", name="Restarts").click()
    expect(page.get_by_role("table").get_by_text("model").first).to_be_visible()


def test_a_pause_shows_what_is_buffered_and_resume_fires(page: Page, shop: Shop) -> None:
    """S-3: pause holds boundaries back; resume fires with them."""
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_text("shop is paused.")).to_be_visible()
    before = shop.state()
    expect(page.get_by_text(f"paused · {before['buffered']} buffered")).to_be_visible()
    shop.push(bid=90, ask=91)
    expect(page.get_by_text(f"paused · {before['buffered'] + 1} buffered")).to_be_visible()
    expect(box(page, "Accumulator book, .*dirty")).to_be_visible()
    assert shop.state()["fires"] == before["fires"]
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_text("buffered", exact=False).filter(has_text="paused")).to_have_count(0)
    expect(firings(page).first).to_contain_text("order price 91")
    assert shop.state()["fires"] == before["fires"] + 1


def test_force_fire_shows_its_firing(page: Page, shop: Shop) -> None:
    """S-3: a firing by hand uses the cache as it is, and is marked as manual."""
    shop.push(bid=80, ask=81)
    expect(firings(page).first).to_contain_text("order price 81")
    page.get_by_role("button", name="Force fire").click()
    expect(page.get_by_role("heading", name=re.compile("Firing shop-"))).to_be_visible()
    expect(firings(page).first).to_contain_text("manual")
    newest = shop.firings()[0]
    assert (newest["manual"], newest["inputs"]["book"]["ask"]) == (True, 81)
    expect(page).to_have_url(re.compile(f"firing={newest['id']}"))


@pytest.mark.expects_errors
def test_fire_with_takes_a_form_made_from_the_boundaries(page: Page, shop: Shop) -> None:
    """S-8: the form starts with the cache, shows the server's problem at its field, and then the firing."""
    shop.push(bid=70, ask=71)
    expect(figure(page, "Firings")).to_have_text(str(shop.state()["fires"]))
    page.get_by_role("button", name="Fire with…").click()
    dialog = page.get_by_role("dialog")
    ask = dialog.get_by_role("group", name="book").get_by_label("ask")
    expect(ask).to_have_value("71")
    ask.fill("")
    dialog.get_by_role("button", name="Fire", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("missing required field `ask`")
    ask.fill("72.5")
    dialog.get_by_role("button", name="Fire", exact=True).click()
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("group", name="Outputs of trader")).to_contain_text("72.5")
    assert shop.firings()[0]["inputs"]["book"] == {"bid": 70, "ask": 72.5}


@pytest.mark.expects_errors
def test_a_wrong_type_is_shown_at_its_field(page: Page, shop: Shop) -> None:
    """http.md: errors[].path leads to the control."""
    page.get_by_role("button", name="Fire with…").click()
    dialog = page.get_by_role("dialog")
    group = dialog.get_by_role("group", name="model")
    page.route("**/commands", lambda route: route.continue_(post_data=WRONG_TYPE))
    dialog.get_by_role("button", name="Fire", exact=True).click()
    expect(group.get_by_label("price")).to_have_attribute("aria-invalid", "true")
    expect(group).to_contain_text("Expected `float`, got `str`")


WRONG_TYPE = '{"command": "fire_with", "inputs": {"model": {"price": "dear"}}}'


def test_restart_asks_and_is_listed(page: Page, shop: Shop) -> None:
    """S-3: restarts of operators are in the history."""
    page.get_by_role("button", name="Restart…").click()
    page.get_by_role("dialog").get_by_role("button", name="Restart", exact=True).click()
    expect(page.get_by_text("shop was restarted.")).to_be_visible()
    page.get_by_role("link", name="Restarts").click()
    expect(page.get_by_role("row", name=re.compile("reactor shop restarted .*by an operator")).first).to_be_visible()


def test_a_failed_firing_shows_its_error(page: Page, shop: Shop) -> None:
    """S-8: the node that failed is red, and the message says why."""
    shop.push(bid=60, ask=50)
    row = firings(page).filter(has_text="failed").first
    expect(row).to_contain_text("the book is crossed")
    row.click()
    expect(page.get_by_text("node 'decide' failed: ValueError: the book is crossed").last).to_be_visible()
    page.get_by_text("Traceback", exact=True).click()
    expect(page.get_by_text(re.compile(r"trader\.py.*in decide", re.DOTALL)).last).to_be_visible()


def test_owners_and_descriptions_are_shown(page: Page, shop: Shop) -> None:
    """F10: of the reactor below its name, and of a node, whose docstring describes it, in its panel."""
    expect(page.get_by_text("Prices of one shop.")).to_be_visible()
    expect(page.get_by_text("Owner: desk")).to_be_visible()
    box(page, "Node decide").click()
    expect(page.get_by_text("Buy what is cheaper than it should be.")).to_be_visible()
    page.get_by_role("link", name="Source").click()
    expect(page.get_by_text("Buys below the fair price.")).to_be_visible()


def test_a_firing_shows_what_its_nodes_wrote(page: Page, shop: Shop) -> None:
    """D6: printed lines and log records are in the details of the firing."""
    shop.push(bid=61, ask=50)
    firings(page).filter(has_text="failed").first.click()
    output = page.get_by_role("region", name="Output of the firing")
    expect(output.get_by_text(re.compile(r"stdout bid 6\d.0 is above ask 50.0"))).to_be_visible()
    expect(output.get_by_text("warning checks: a crossed book")).to_be_visible()
    assert violations(page) == []


def test_a_test_event_is_pushed_by_a_form(page: Page, shop: Shop) -> None:
    """S-8: the form comes from the schema of the event; the receipt says what became of it."""
    box(page, "Accumulator book").click()
    expect(page).to_have_url(re.compile("select=book"))
    panel = page.get_by_role("region", name="Accumulator book")
    panel.get_by_label("bid").fill("55")
    panel.get_by_label("ask").fill("56")
    panel.get_by_role("button", name="Push event").click()
    expect(panel.get_by_text(re.compile(r"Event \d+ was emitted"))).to_be_visible()
    expect(firings(page).first).to_contain_text("order price 56")
    assert shop.firings()[0]["inputs"]["book"] == {"bid": 55, "ask": 56}


def test_an_accumulator_is_restarted_from_its_panel(page: Page, shop: Shop) -> None:
    """S-3: restart of an accumulator, after a question."""
    page.goto(f"{shop.address}?select=model")
    page.get_by_role("button", name="Restart accumulator…").click()
    page.get_by_role("dialog").get_by_role("button", name="Restart", exact=True).click()
    expect(page.get_by_text("model was restarted.")).to_be_visible()
    recoveries = shop.api.get("/reactors/shop/recoveries").json()["items"]
    assert (recoveries[0]["name"], recoveries[0]["action"]) == ("model", "restarted")


def test_dead_letters_are_replayed_and_deleted(page: Page, shop: Shop) -> None:
    """S-3: replay tells its result, delete asks first, and the list follows."""
    shop.push(bid="wrong")
    shop.push(bid="worse")
    page.get_by_role("link", name="Dead letters").click()
    letters = page.get_by_role("region", name="Dead letters").get_by_role("listitem")
    expect(letters).to_have_count(2)
    letters.first.get_by_role("button", name="Replay").click()
    expect(page.get_by_text(re.compile("The event failed again: .*Expected `float`"))).to_be_visible()
    page.get_by_role("button", name="Replay all").click()
    failed = page.locator("[data-tone=error]").filter(has_text="0 dead letters processed, 2 failed again.")
    expect(failed).to_be_visible()  # UD-23: an error, which stays until it is closed
    failed.get_by_role("button", name="Close the message").click()
    expect(failed).to_have_count(0)
    letters.first.get_by_role("button", name="Delete…").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    expect(letters).to_have_count(1)
    assert shop.api.get("/reactors/shop/dead-letters").json()["total"] == 1


def test_the_log_holds_still_while_it_is_pointed_at(page: Page, shop: Shop) -> None:
    """S-9: nothing jumps under the pointer; the page counts what is new."""
    shop.push(bid=40, ask=41)
    expect(firings(page).first).to_contain_text("order price 41")
    firings(page).first.hover()
    shop.push(bid=42, ask=43)
    new = page.get_by_role("button", name="1 new firing")
    expect(new).to_be_visible()
    expect(firings(page).first).to_contain_text("order price 41")
    new.click()
    expect(firings(page).first).to_contain_text("order price 43")


def test_links_lead_to_every_part(page: Page, shop: Shop) -> None:
    """S-9: tab, selection and firing are in the address, and each part is accessible."""
    shop.push(bid=30, ask=31)
    newest = shop.firings()[0]["id"]
    parts = {
        "": "Graph",
        f"?firing={newest}": f"Firing {newest}",
        "?select=model": "Accumulator model",
        "?select=trader/decide": "Node decide",
        "?tab=latency": "Duration of firings",
        "?tab=cache": "Cache",
        "?tab=dead-letters": "Dead letters",
        "?tab=restarts": "Restart history",
        "?tab=source": "trader, compiled",
    }
    for search, heading in parts.items():
        open_page(page, shop.address + search)
        expect(page.get_by_role("heading", level=2, name=heading, exact=True)).to_be_visible()
        assert violations(page) == [], search


def test_the_list_shows_all_reactors_and_opens_one(page: Page, shop: Shop) -> None:
    """S-8: health, firings and graphs of each; j and Enter open one."""
    open_page(page, f"{shop.node.url}/reactors")
    row = page.get_by_role("row", name=re.compile("shop"))
    expect(row).to_contain_text("trader")
    before = shop.state()["fires"]
    shop.push(bid=20, ask=21)
    expect(row).to_contain_text(str(before + 1))
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page).to_have_url(shop.address)


def test_only_reactors_that_are_not_live_are_listed_where_home_leads(page: Page, shop: Shop) -> None:
    """The tile "Reactors not live" led to the whole list."""
    shop.feed_lost.touch()
    page.goto(shop.node.url)
    page.get_by_role("link", name="1 Reactors not live").click()
    expect(page).to_have_url(f"{shop.node.url}/reactors?not_live=true")
    expect(page.get_by_role("link", name="shop", exact=True)).to_be_visible()
    shop.feed_lost.unlink()
    expect(page.get_by_text("Every reactor is live.")).to_be_visible()


def test_counters_say_since_when_they_count_and_what_decisions_start(page: Page, shop: Shop) -> None:
    """D17, D18: after a move the counters are smaller, and decisions without a workflow start nothing."""
    page.goto(shop.address)
    since = datetime.fromisoformat(shop.state()["counted_since"]).astimezone()
    figures = page.get_by_label("Figures", exact=True)
    expect(figures.get_by_text("Counted since")).to_be_visible()
    expect(figures).to_contain_text(f"{since:%H:%M:%S}")
    expect(page.get_by_text("starts no workflow")).to_be_visible()
    page.goto(f"{shop.address}?select=book")
    expect(page.get_by_text("Counted since").nth(1)).to_be_visible()


@pytest.mark.expects_errors
def test_an_unknown_reactor_is_said_to_be_unknown(page: Page, shop: Shop) -> None:
    """S-9: a wrong address gives the server's answer with its suggestion."""
    page.goto(f"{shop.node.url}/reactors/shpo")
    expect(page.get_by_role("alert")).to_contain_text("Did you mean shop?")


@pytest.mark.expects_errors
def test_the_page_of_a_reactor_survives_the_loss_of_its_server(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-9: the last state stays and is marked as such; afterwards the page follows the reactor again."""
    monkeypatch.setenv("TIDEMILL_TEST_FEED_LOST", str(tmp_path / "lost"))
    port = free_port()
    with demo_node(tmp_path, PACKAGES, port) as node:
        open_page(page, f"{node.url}/reactors/shop")
        expect(box(page, "Reactor shop, live")).to_be_visible()
        node.process.kill()
        expect(page.get_by_text("not live: this is the last known state")).to_be_visible()
        expect(page.get_by_text("Reconnecting")).to_be_visible()
        expect(box(page, "Reactor shop, live")).to_be_visible()
    with demo_node(tmp_path, PACKAGES, port) as node:
        expect(page.get_by_text("not live")).to_have_count(0, timeout=20_000)
        answer = httpx.post(f"{node.url}/api/v1/accumulators/book/events", json={"bid": 10, "ask": 11})
        assert answer.is_success, answer.text
        expect(firings(page).first).to_contain_text("order price 11")
