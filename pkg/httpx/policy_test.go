package httpx

import (
	"net"
	"net/netip"
	"testing"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// All of these are refused: addresses that are not public, in every family and embedding.
func TestSpecialAddressesAreRefused(t *testing.T) {
	t.Parallel()
	p, err := parseAllow(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range []string{
		"0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.255.255.254",
		"169.254.169.254", "169.254.170.2", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.0.170", "192.0.2.1", "192.31.196.1",
		"192.52.193.1", "192.88.99.1", "192.168.0.1", "192.168.255.255", "192.175.48.1", "198.18.0.1", "198.19.255.255",
		"198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
		"::", "::1", "::ffff:127.0.0.1", "::ffff:7f00:1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "::ffff:0:127.0.0.1",
		"64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b::8.8.8.8", "64:ff9b:1::a00:1", "100::1", "100:0:0:1::1", "2001::1",
		"2001:2::1", "2001:10::1",
		"2001:20::1", "2001:db8::1", "2002:7f00:1::", "2002:a9fe:a9fe::1", "2620:4f:8000::1", "3fff::1", "4000::1", "5f00::1",
		"fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "febf::1", "fec0::1", "ff02::1",
	} {
		err := p.check("evil.example", "443", "tcp", net.JoinHostPort(addr, "443"))
		if !fault.Is(err, fault.Denied) {
			t.Errorf("%s: %v, want it refused", addr, err)
		}
	}
}

func TestPublicAddressesPass(t *testing.T) {
	t.Parallel()
	p, err := parseAllow(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range []string{
		"1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.1", "172.15.255.255",
		"172.32.0.0", "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0", "223.255.255.255", "::ffff:8.8.8.8",
		"2606:4700:4700::1111", "2a00:1450:4001::1", "2001:4860:4860::8888",
	} {
		if err := p.check("registry.example", "443", "tcp4", net.JoinHostPort(addr, "443")); err != nil {
			t.Errorf("%s: %v", addr, err)
		}
	}
	if err := p.check("registry.example", "5000", "tcp", "8.8.8.8:5000"); !fault.Is(err, fault.Denied) {
		t.Errorf("port 5000: %v, want it refused", err)
	}
	if err := p.check("registry.example", "443", "udp", "8.8.8.8:443"); !fault.Is(err, fault.Denied) {
		t.Errorf("udp: %v, want it refused", err)
	}
}

func TestAllow(t *testing.T) {
	t.Parallel()
	p, err := parseAllow([]string{"10.1.0.0/16", "127.0.0.1:5000", "fd00::/8", "[::1]:80", "registry.corp", "*.svc.corp:8443", "192.168.1.7"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		host, port, addr string
		ok               bool
	}{
		{"x", "5000", "10.1.2.3", true},
		{"x", "443", "10.2.0.1", false},
		{"x", "5000", "127.0.0.1", true},
		{"x", "5000", "::ffff:127.0.0.1", true},
		{"x", "5001", "127.0.0.1", false},
		{"x", "80", "::1", true},
		{"x", "443", "::1", false},
		{"x", "443", "fd12::1", true},
		{"x", "9", "192.168.1.7", true},
		{"x", "443", "192.168.1.8", false},
		{"Registry.Corp.", "5000", "10.9.9.9", true},
		{"registry.corp.evil.example", "443", "10.9.9.9", false},
		{"evilregistry.corp", "443", "10.9.9.9", false},
		{"a.svc.corp", "8443", "10.9.9.9", true},
		{"a.svc.corp", "443", "10.9.9.9", false},
		{"svc.corp", "8443", "10.9.9.9", false},
	} {
		err := p.check(tt.host, tt.port, "tcp", net.JoinHostPort(tt.addr, tt.port))
		if (err == nil) != tt.ok {
			t.Errorf("%s at %s:%s: %v, want allowed %t", tt.host, tt.addr, tt.port, err, tt.ok)
		}
	}
	for _, bad := range []string{
		"", "10.0.0.0/33", "a b", "host:port", "host:0", "host:70000", "*", "*.*", "127.1", "2130706433",
		"fe80::1%eth0", "http://x", "x/y", "x:1:2",
	} {
		if _, err := parseAllow([]string{bad}); !fault.Is(err, fault.Invalid) || fault.FieldsOf(err)[0].Name != "allow[0]" {
			t.Errorf("%q: %v, want it refused by name", bad, err)
		}
	}
}

// FuzzCheck: whatever the spelling, an address that netip does not consider global unicast, or that is private, never passes.
func FuzzCheck(f *testing.F) {
	for _, seed := range []string{
		"127.0.0.1:80", "[::ffff:7f00:1]:443", "[64:ff9b::1]:443", "8.8.8.8:443", "[fe80::1%25lo]:80", "0x7f.1:80",
		":80", "[::]:443",
	} {
		f.Add(seed)
	}
	p, err := parseAllow(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, address string) {
		if p.check("host", "443", "tcp", address) != nil {
			return
		}
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			t.Fatalf("%q passes and is no address", address)
		}
		a := at.Addr().WithZone("").Unmap()
		if a.IsPrivate() || a.IsLoopback() || a.IsMulticast() || a.IsUnspecified() || a.IsLinkLocalUnicast() || !a.IsGlobalUnicast() {
			t.Fatalf("%s passes", a)
		}
		if a.Is6() && !netip.MustParsePrefix("2000::/3").Contains(a) {
			t.Fatalf("%s passes", a)
		}
	})
}
