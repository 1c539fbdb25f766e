package config

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/mongostream/streamer/fault"
)

// A sampleConfig has a field of each form.
type sampleConfig struct {
	Name string `key:"name" default:"corner" check:"short"`
	Open bool   `key:"open" default:"true"`
	Till struct {
		Float   int           `key:"float" default:"5" range:"1..9"`
		Drawer  int64         `key:"drawer_size" default:"2KiB" range:"1KiB.."`
		Timeout time.Duration `key:"timeout" default:"1h" range:"1s.."`
		Slip    struct {
			Colours []string `key:"colours" default:"red,blue" one:"red blue green"`
		} `key:"slip"`
	} `key:"till"`
	PIN samplePIN `key:"pin" default:"" secret:"yes"`
}

type samplePIN string

func (p *samplePIN) UnmarshalText(text []byte) error {
	if len(text) != 4 {
		return errors.New("must have four digits")
	}
	*p = samplePIN(text)
	return nil
}

func (p samplePIN) String() string { return strings.Repeat("*", len(p)) }

// fill makes a kiosk of a file and an environment.
func fill(file string, environ ...string) (sampleConfig, *table) {
	var k sampleConfig
	t := newTable(&k)
	t.forms = map[string]func(string) error{"short": func(text string) error {
		if len(text) > 8 {
			return errors.New("is too long")
		}
		return nil
	}}
	t.open = func(path string) ([]byte, error) {
		if path == "/gone" {
			return nil, errors.New("gone")
		}
		return []byte(strings.TrimPrefix(path, "/")), nil
	}
	t.setDefaults()
	t.file("k.yaml", []byte(file))
	t.environ("KIOSK_", environ)
	return k, t
}

func TestDefaults(t *testing.T) {
	k, tab := fill("")
	var want sampleConfig
	want.Name, want.Open, want.Till.Float, want.Till.Drawer, want.Till.Timeout = "corner", true, 5, 2048, time.Hour
	want.Till.Slip.Colours = []string{"red", "blue"}
	if diff := cmp.Diff(want, k); diff != "" || tab.err() != nil {
		t.Errorf("%s%v", diff, tab.err())
	}
	var lines []string
	for path, text := range tab.all() {
		lines = append(lines, path+": "+text)
	}
	got := strings.Join(lines, "\n")
	if want := "name: corner\nopen: true\ntill.float: 5\ntill.drawer_size: 2KiB\ntill.timeout: 1h\ntill.slip.colours: [red, blue]\npin: "; got != want {
		t.Error(got)
	}
}

func TestLaterSourcesWin(t *testing.T) {
	k, tab := fill("name: file\npin: '1111'\ntill: {float: 2, slip: {colours: [green]}}",
		"KIOSK_NAME=lost", "KIOSK_NAME=env", "KIOSK_PIN_FILE=/2222\n", "KIOSK_TILL_SLIP_COLOURS= red , green", "KIOSK_TEST_X=1", "KIOSK_CLIENT_X=1", "HOME=x")
	if tab.err() != nil || k.Name != "env" || k.PIN != "2222" || k.Till.Float != 2 || !cmp.Equal(k.Till.Slip.Colours, []string{"red", "green"}) {
		t.Errorf("%+v %v", k, tab.err())
	}
}

func TestComplaints(t *testing.T) {
	tests := []struct {
		name, file, env string
		code            fault.Code
		want            string
	}{
		{"unknown key", "\nnmae: x", "", fault.ConfigUnknownKey, `k.yaml:2: there is no key "nmae"; did you mean name?`},
		{"unknown section", "tlil: {float: 1}", "", fault.ConfigUnknownKey, `k.yaml:1: there is no key "tlil"; did you mean till?`},
		{"key in the wrong section", "drawer_size: 1KiB", "", fault.ConfigUnknownKey, "did you mean till.drawer_size?"},
		{"nothing near", "elephant: 1", "", fault.ConfigUnknownKey, `there is no key "elephant"`},
		{"unknown variable", "", "KIOSK_TILL_FLAOT=1", fault.ConfigUnknownKey, "KIOSK_TILL_FLAOT: no key has this variable; did you mean KIOSK_TILL_FLOAT?"},
		{"Kubernetes's variable", "", "KIOSK_PORT_80_TCP=x", fault.ConfigUnknownKey, "enableServiceLinks: false"},
		{"merge key", "till: {<<: {float: 1}}", "", fault.ConfigUnknownKey, `"till.<<"`},
		{"duplicate key", "till:\n  float: 1\n  float: 2", "", fault.ConfigConflict, "k.yaml:3: till.float stands twice, first at line 2"},
		{"duplicate section", "till: {float: 1}\ntill: {float: 2}", "", fault.ConfigConflict, "k.yaml:2: till stands twice, first at line 1"},
		{"secret and its file", "pin: '1234'\npin_file: /x", "", fault.ConfigConflict, "k.yaml:2: pin and pin_file exclude each other (k.yaml:1)"},
		{"list for a text", "name: [a]", "", fault.ConfigBadValue, "k.yaml:1: name: takes one value, not a list"},
		{"text for a list", "till: {slip: {colours: red}}", "", fault.ConfigBadValue, "till.slip.colours: must be a list"},
		{"keys for a text", "name: {a: b}", "", fault.ConfigBadValue, "name: takes a value, not keys"},
		{"text for a section", "till: 5", "", fault.ConfigBadValue, "till must have keys"},
		{"text for the file", "till", "", fault.ConfigBadValue, "the file must have keys"},
		{"no value", "open:", "", fault.ConfigBadValue, "open: has no value"},
		{"list in a list", "till: {slip: {colours: [[red]]}}", "", fault.ConfigBadValue, "an item of the list must be a text"},
		{"alias", "name: &a x\npin: *a", "", fault.ConfigBadValue, "k.yaml:2: pin: aliases are not followed"},
		{"key that is no word", "[a]: b", "", fault.ConfigBadValue, "a key must be a word"},
		{"item on its own line", "till:\n  slip:\n    colours:\n    - red\n    - pink", "", fault.ConfigBadValue, `k.yaml:5: till.slip.colours: "pink" must be one of red, blue, green`},
		{"range", "till: {float: 10}", "", fault.ConfigBadValue, `"10" must lie between 1 and 9`},
		{"open range", "", "KIOSK_TILL_TIMEOUT=1ms", fault.ConfigBadValue, `"1ms" must be at least 1s`},
		{"secret of the wrong form", "pin: hush", "", "", ""},
		{"secret is not repeated", "pin: hushhush", "", fault.ConfigBadValue, "k.yaml:1: pin: must have four digits"},
		{"secret's file is gone", "pin_file: /gone", "", fault.ConfigUnreadable, "k.yaml:1: pin_file: gone"},
		{"secret's file is empty", "pin_file: /", "", fault.ConfigBadValue, "pin_file: in /: there is nothing"},
		{"not YAML", "name: x\n\tpin: y", "", fault.ConfigUnreadable, "k.yaml:2: not YAML"},
		{"two documents", "name: x\n---\nname: y", "", fault.ConfigUnreadable, "k.yaml:2: a second document"},
		{"refused though overridden", "open: perhaps", "KIOSK_OPEN=true", fault.ConfigBadValue, "k.yaml:1: open:"},
	}
	for _, tt := range tests {
		_, tab := fill(tt.file, tt.env)
		err := tab.err()
		if fault.Of(err) != tt.code || tt.code != "" && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", tt.name, err)
		}
		if err != nil && strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: shows a secret: %v", tt.name, err)
		}
	}
}

func TestComplaintsKeepTheOrderOfTheFile(t *testing.T) {
	_, tab := fill("open: 1\nx: 1\nname: far too long\nname: a", "KIOSK_B=", "KIOSK_A=")
	tab.conflict(true, "name", "open", "never told: both are refused already")
	tab.conflict(true, "till.float", "till.timeout", "no time")
	var places []string
	for line := range strings.Lines(tab.err().Error()) {
		places = append(places, strings.SplitN(line, ": ", 3)[1])
	}
	if want := []string{"k.yaml:1", "k.yaml:2", "k.yaml:3", "k.yaml:4", "KIOSK_A", "KIOSK_B", "by default"}; !cmp.Equal(want, places) {
		t.Errorf("%q", places)
	}
}

func TestEmptySectionHasNoKeys(t *testing.T) {
	if k, tab := fill("till:\n# float: 3\nname: x"); tab.err() != nil || k.Till.Float != 5 {
		t.Errorf("%+v %v", k, tab.err())
	}
}

func TestBrokenDefaultIsABrokenTable(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	newTable(&struct {
		A int `key:"a" default:"5" range:"6..7"`
	}{}).setDefaults()
}

func TestWhatIsShownIsReadAsTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k, _ := fill("")
		k.Till.Drawer = rapid.Int64Min(1024).Draw(t, "drawer")
		k.Till.Timeout = time.Duration(rapid.Int64Min(int64(time.Second)).Draw(t, "timeout"))
		var environ []string
		for path, text := range newTable(&k).all() {
			if strings.HasPrefix(path, "till.") && path != "till.slip.colours" {
				environ = append(environ, fmt.Sprintf("KIOSK_%s=%s", strings.ToUpper(strings.ReplaceAll(path, ".", "_")), text))
			}
		}
		again, tab := fill("", environ...)
		if diff := cmp.Diff(k, again); diff != "" || tab.err() != nil {
			t.Errorf("%s%v", diff, tab.err())
		}
	})
}
