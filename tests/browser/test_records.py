"""The pages of what operators keep: variables, secrets, pools, tenants, keys, accounts, audit log (S-4 to S-8)."""

import json

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.browser.demo_node import DemoNode


def read(node: DemoNode, path: str) -> httpx.Response:
    """Return an answer of the API."""
    return httpx.get(f"{node.url}/api/v1{path}")


def confirm(page: Page, row: str, action: str, button: str) -> None:
    """Click an action of a row, and confirm it in the dialog that says what happens."""
    page.get_by_role("button", name=f"{action} {row}", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name=button).click()
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_a_variable_is_created_changed_and_deleted(page: Page, node: DemoNode) -> None:
    """S-8: JSON stays JSON, and a text needs no quotes."""
    page.goto(f"{node.url}/variables")
    page.get_by_role("button", name="New variable").click()
    page.get_by_label("Name").fill("browser_limits")
    page.get_by_label("Value").fill('{"max": 4}')
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("cell", name='{"max":4}')).to_be_visible()
    assert read(node, "/variables/browser_limits").json()["value"] == {"max": 4}
    page.get_by_role("button", name="Edit browser_limits").click()
    page.get_by_label("Value").fill("plenty")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("cell", name='"plenty"')).to_be_visible()
    assert read(node, "/variables/browser_limits").json()["value"] == "plenty"
    confirm(page, "browser_limits", "Delete", "Delete variable")
    assert read(node, "/variables/browser_limits").status_code == 404


def test_a_name_that_no_address_can_hold_is_refused_in_the_form(page: Page, node: DemoNode) -> None:
    """UD-21: the browser says what a name is made of, before anything is sent."""
    page.goto(f"{node.url}/variables?dialog=new")
    name = page.get_by_label("Name")
    name.fill("eu/region")
    page.get_by_label("Value").fill("1")
    page.get_by_role("button", name="Save").click()
    assert name.evaluate("input => input.validity.patternMismatch")
    expect(page.get_by_role("dialog", name="New variable")).to_be_visible()
    name.fill("eu.region_browser-1")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Variable eu.region_browser-1 is set.")).to_be_visible()
    httpx.delete(f"{node.url}/api/v1/variables/eu.region_browser-1").raise_for_status()


@pytest.mark.expects_errors
def test_a_new_variable_does_not_replace_another_one(page: Page, node: DemoNode) -> None:
    """The form overwrote the variable of that name in silence."""
    httpx.put(f"{node.url}/api/v1/variables/taken", json={"value": 1}).raise_for_status()
    page.goto(f"{node.url}/variables?dialog=new")
    page.get_by_label("Name").fill("taken")
    page.get_by_label("Value").fill("2")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("dialog").get_by_text("there is a variable 'taken' already")).to_be_visible()
    assert read(node, "/variables/taken").json()["value"] == 1


def test_enter_on_a_button_presses_that_button(page: Page, node: DemoNode) -> None:
    """S-9: the shortcuts of a list take nothing away from the keyboard."""
    httpx.put(f"{node.url}/api/v1/variables/pressed", json={"value": 1})
    page.goto(f"{node.url}/variables?q=pressed")
    page.get_by_role("button", name="Delete pressed").focus()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="Delete pressed?")).to_be_visible()


def test_what_begins_as_json_and_is_none_is_not_saved(page: Page, node: DemoNode) -> None:
    """S-8: the form says what is wrong before anything is sent; the dialog has an address of its own."""
    page.goto(f"{node.url}/variables?dialog=new")
    page.get_by_label("Name").fill("broken")
    page.get_by_label("Value").fill('{"max": ')
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("This begins as JSON, but is none.")).to_be_visible()
    assert read(node, "/variables/broken").status_code == 404


def test_a_secret_is_set_replaced_and_deleted_but_never_shown(page: Page, node: DemoNode) -> None:
    """S-6: no page shows a secret."""
    page.goto(f"{node.url}/secrets")
    page.get_by_role("button", name="New secret").click()
    page.get_by_label("Name").fill("browser_password")
    page.get_by_label("Value").fill("hunter2-canary")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("cell", name="browser_password", exact=True)).to_be_visible()
    page.get_by_role("button", name="Replace browser_password").click()
    page.get_by_label("Value").fill("hunter3-canary")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("row", name="browser_password").get_by_role("cell", name="2", exact=True)).to_be_visible()
    assert "canary" not in page.content()
    confirm(page, "browser_password", "Delete", "Delete secret")
    assert read(node, "/secrets/browser_password").status_code == 404


def test_a_pool_is_made_resized_and_deleted(page: Page, node: DemoNode) -> None:
    """S-8: a pool shows how much of it is used."""
    page.goto(f"{node.url}/pools")
    page.get_by_role("button", name="New pool").click()
    page.get_by_label("Name").fill("browser_pool")
    page.get_by_role("spinbutton", name="Slots").fill("3")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("img", name="Used slots of browser_pool: 0 of 3")).to_be_visible()
    page.get_by_role("button", name="Resize browser_pool").click()
    page.get_by_role("spinbutton", name="Slots").fill("7")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("img", name="Used slots of browser_pool: 0 of 7")).to_be_visible()
    assert read(node, "/pools/browser_pool").json()["slots"] == 7
    confirm(page, "browser_pool", "Delete", "Delete pool")
    assert read(node, "/pools/browser_pool").status_code == 404


def test_a_tenant_is_created_and_deleted_by_its_typed_name(page: Page, node: DemoNode) -> None:
    """S-5: nothing brings a tenant back, so the dialog wants its name."""
    page.goto(f"{node.url}/tenants")
    page.get_by_role("button", name="New tenant").click()
    page.get_by_label("Name").fill("browserland")
    page.get_by_role("button", name="Create").click()
    page.get_by_role("button", name="Delete browserland").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Delete tenant")).to_be_disabled()
    dialog.get_by_label("Type browserland to confirm").fill("browserland")
    dialog.get_by_role("button", name="Delete tenant").click()
    expect(page.get_by_role("cell", name="browserland")).to_have_count(0)
    assert "browserland" not in read(node, "/tenants").text


def test_a_key_is_shown_once_and_can_be_revoked(page: Page, node: DemoNode) -> None:
    """S-4: the page shows a key once, with its role and its expiry; a revoked one stays in the list."""
    page.goto(f"{node.url}/keys")
    page.get_by_role("button", name="New key").click()
    page.get_by_label("Label").fill("browser-key")
    page.get_by_role("combobox", name="Role").select_option("write")
    page.get_by_role("button", name="Create key").click()
    key = page.get_by_role("dialog").locator("code").first.inner_text()
    assert key.startswith("tm_")
    page.get_by_role("button", name="I have copied it").click()
    assert key not in page.content()
    confirm(page, "browser-key", "Revoke", "Revoke key")
    expect(page.get_by_role("row", name="browser-key").get_by_text("revoked")).to_be_visible()
    created = next(one for one in read(node, "/keys").json()["items"] if one["label"] == "browser-key")
    assert created["role"] == "write"
    assert created["expires_at"] is not None
    assert created["revoked_at"] is not None


def test_a_key_may_reach_only_some_endpoints(page: Page, node: DemoNode) -> None:
    """S-4: the form restricts a key, and shows the answer of the server to a restriction that makes no sense."""
    page.goto(f"{node.url}/keys?dialog=new")
    page.get_by_label("Label").fill("restricted-key")
    page.get_by_label("Only these endpoints").fill("accumulators:orderbook\nreactors:market")
    page.get_by_role("button", name="Create key").click()
    page.get_by_role("button", name="I have copied it").click()
    expect(page.get_by_role("cell", name="accumulators:orderbook, reactors:market")).to_be_visible()


def test_an_account_is_created_and_deleted(page: Page, node: DemoNode) -> None:
    """S-4: local accounts."""
    page.goto(f"{node.url}/accounts")
    page.get_by_role("button", name="New account").click()
    page.get_by_label("Name").fill("browser-ada")
    page.get_by_label("Password").fill("correct horse battery")
    page.get_by_role("button", name="Create account").click()
    expect(page.get_by_role("cell", name="browser-ada", exact=True)).to_be_visible()
    confirm(page, "browser-ada", "Delete", "Delete account")
    assert "browser-ada" not in read(node, "/accounts").text


def test_the_audit_log_filters_and_shows_details(page: Page, node: DemoNode) -> None:
    """S-7: every change is listed; a word filters, and the filter is in the address."""
    for value in range(3):
        httpx.put(f"{node.url}/api/v1/variables/audited", json={"value": value})
    page.goto(f"{node.url}/audit?target=audited")
    expect(page.get_by_text("3 changes")).to_be_visible()
    page.get_by_role("button", name="variable.set", exact=True).first.click()
    expect(page).to_have_url(f"{node.url}/audit?target=audited&action=variable.set")
    page.get_by_role("button", name="Details of variable.set").first.click()
    shown = json.loads(page.get_by_role("group", name="Details of variable.set").inner_text())
    assert shown["request_id"]


def test_a_long_audit_log_loads_as_one_scrolls(page: Page, node: DemoNode) -> None:
    """S-9: long lists are paged and virtualised: only visible rows exist."""
    with httpx.Client(base_url=node.url) as client:
        for value in range(150):
            client.put("/api/v1/variables/many", json={"value": value})
    page.goto(f"{node.url}/audit?target=many")
    rows = page.get_by_role("button", name="Details of variable.set")
    expect(page.get_by_text("150 changes")).to_be_visible()
    expect(rows.first).to_be_visible()
    assert rows.count() < 80
    scroll_to_end = "document.querySelector('[aria-label=Changes]').scrollTo(0, 1e6)"
    page.evaluate(scroll_to_end)
    expect(page.locator("[data-index='100']")).to_be_attached()
    page.evaluate(scroll_to_end)
    expect(page.locator("[data-index='149']")).to_be_visible()


@pytest.mark.expects_errors
def test_two_tabs_that_edit_one_variable_see_a_conflict(page: Page, node: DemoNode) -> None:
    """UD-14: the second one learns what the first has saved, nothing is lost, and the choice is made by a person."""
    address = f"{node.url}/api/v1/variables/shared_limit"
    httpx.put(address, json={"value": 1}).raise_for_status()
    page.goto(f"{node.url}/variables?q=shared_limit")
    page.get_by_role("button", name="Edit shared_limit").click()
    page.get_by_label("Value", exact=True).fill("3")
    httpx.put(address, json={"value": 2}).raise_for_status()
    expect(page.get_by_role("cell", name="2", exact=True)).to_be_visible()  # the list behind the form has followed
    page.get_by_role("button", name="Save").click()
    conflict = page.get_by_role("alert", name="Conflict")
    expect(conflict.get_by_label("The value that is stored", exact=True)).to_have_text("2")
    expect(page.get_by_label("Value", exact=True)).to_have_value("3")
    assert httpx.get(address).json()["value"] == 2
    conflict.get_by_role("button", name="Start again from this value").click()
    expect(page.get_by_label("Value", exact=True)).to_have_value("2")
    page.get_by_label("Value", exact=True).fill("4")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Variable shared_limit is set.")).to_be_visible()
    assert httpx.get(address).json()["value"] == 4
    httpx.delete(address).raise_for_status()
