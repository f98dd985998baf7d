#!/bin/bash
# Runs inside the container of run_systemd.sh, as a unit. Prints one KEY=VALUE for each result.
# usage: systemd_checks.sh deb|rpm
# /root has the package (first.deb or first.rpm) and a newer package with another /etc/default file (second.deb or second.rpm).
exec >/root/results.txt 2>&1
kind=$1
unit=trtllm-exporter
show() { systemctl show $unit -p "$1" --value; }
within() { for _ in $(seq 100); do "$@" && return 0; sleep 0.1; done; return 1; } # COMMAND...: repeats the command for at most 10 s
page() { curl -fsS --max-time 5 -o /root/page http://127.0.0.1:8002/metrics 2>/dev/null; }
has() { page && grep -q "$1" /root/page; }
is() { [ "$(show "$1")" = "$2" ]; }
restarted() { is ActiveState active && [ "$(show NRestarts)" -gt "$1" ]; }
publish() { # USER: connects to the ingest socket as this user; prints "connected" or "refused"
  setpriv --reuid="$1" --regid="$1" --init-groups curl -s --max-time 1 --unix-socket /run/trtllm-exporter/ingest.sock http://x/
  [ $? = 7 ] && echo refused || echo connected
}
files() { # lists everything that a package could leave behind, without the files that dpkg, rpm, systemd and the journal write for themselves
  find /etc /usr /var /srv /opt /home -xdev ! -path '/var/log/*' ! -path '/var/lib/dpkg/*' ! -path '/var/lib/rpm*' ! -path '/var/cache/*' ! -path '/var/lib/systemd/*' \
    ! -path '/etc/systemd/system/check.service' ! -name 'passwd-' ! -name 'group-' ! -name 'shadow-' ! -name 'gshadow-' \
    ! -name 'subuid*' ! -name 'subgid*' ! -name '*.lock' ! -path '/var/tmp/*' | sort
  cut -d: -f1 /etc/passwd /etc/group | sort
}

configuration=/etc/default/trtllm-exporter
state() { echo "active=$(show ActiveState) enabled=$(systemctl is-enabled $unit)"; }

install_deb() { dpkg -i /root/first.deb; echo "install=$?"; within is ActiveState active; echo "after-install: $(state)"; }
upgrade_deb() { dpkg -i --force-confdef --force-confold /root/second.deb; echo "upgrade=$?"; }
remove_deb() {
  dpkg -r trtllm-exporter; echo "remove=$? active=$(show ActiveState) configuration=$(stat -c %n $configuration)"
  dpkg -P trtllm-exporter; echo "purge=$?"
}
# Uses --nodeps, because rpm does not know Debian's packages.
install_rpm() {
  rpm --install --nodeps /root/first.rpm; echo "install=$?"
  # An .rpm does not start its service. A preset of systemd decides whether the service is enabled.
  echo "after-install: $(state)"
  rpm --verify --nodeps trtllm-exporter; echo "verified=$?"
  systemctl start $unit
}
upgrade_rpm() {
  rpm --upgrade --nodeps /root/second.rpm; echo "upgrade=$?"
  echo "version=$(rpm --query --queryformat '%{VERSION}' trtllm-exporter) new configuration=$(stat -c %n $configuration.rpmnew)"
  rm $configuration.rpmnew
}
remove_rpm() {
  rpm --erase trtllm-exporter; echo "remove=$? active=$(show ActiveState) configuration=$(stat -c %n $configuration.rpmsave)"
  rm $configuration.rpmsave
  # Like other packages of Fedora and RHEL, the package keeps its user.
  id -u trtllm-exporter && echo "user=kept"
  userdel trtllm-exporter; groupdel trtllm-exporter
}
if [ "$kind" = rpm ]; then
  # Imitate RHEL, where a unit is enabled only if a preset names it. This preset names only the service. RHEL also has the
  # folder /usr/share/licenses.
  mkdir -p /etc/systemd/system-preset /usr/share/licenses
  printf 'enable %s.service\ndisable *\n' $unit >/etc/systemd/system-preset/00-check.preset
fi

useradd other; useradd server
files >/root/before
export DEBIAN_FRONTEND=noninteractive
"install_$kind"
echo "running: type=$(show Type) active=$(show ActiveState) status=$(show StatusText)"
echo "sockets: $(systemctl is-enabled $unit.socket $unit-ingest.socket | tr '\n' ' ')"
grep -E '^(CapBnd|NoNewPrivs|Seccomp):' "/proc/$(show MainPID)/status" | tr -s '\t\n' ' '; echo
echo "user=$(stat -c %U "/proc/$(show MainPID)")"
echo "exposure=$(systemd-analyze security $unit --no-pager | sed -n 's/.*exposure level.*: \([0-9.]*\).*/\1/p')"
within page; trtllm-doctor diagnose >/dev/null; echo "doctor=$?"; echo "page=$(grep -vc '^#' /root/page)"
usermod -aG trtllm-exporter server
echo "own socket=$(stat -c '%a %U %G' /run/trtllm-exporter/ingest.sock) member=$(publish server) other=$(publish other)"
kill -KILL "$(show MainPID)"; within restarted 0; echo "after-kill=$(show ActiveState) restarts=$(show NRestarts)"

echo "== reload"
mkdir -p /etc/trtllm-exporter
engine() { printf -- '- source: "sim:"\n  model: %s\n' "$1"; }
{ echo engines:; engine one; } >/etc/trtllm-exporter/config.yaml
printf 'ARGS="--config.file=/etc/trtllm-exporter/config.yaml"\n' >>/etc/default/trtllm-exporter
systemctl restart $unit; within has 'model="one"'; pid=$(show MainPID)
engine two >>/etc/trtllm-exporter/config.yaml
systemctl reload $unit; echo "reload=$?"
within has 'model="two"' && echo "reloaded=$([ "$pid" = "$(show MainPID)" ] && echo in-place || echo restarted)"

echo "== recording and the drop-in engine-gpus.conf"
printf 'ARGS="--source=sim: --record.dir=/var/lib/trtllm-exporter/recording"\n' >>/etc/default/trtllm-exporter
install -D -m 0644 -t /etc/systemd/system/$unit.service.d /usr/share/trtllm-exporter/systemd/engine-gpus.conf
systemctl daemon-reload; systemctl restart $unit
recorded() { compgen -G '/var/lib/trtllm-exporter/recording/*.rec*' >/dev/null; }
within recorded; echo "recording=$(stat -c '%a %U' /var/lib/trtllm-exporter) files=$(recorded && echo yes)"
echo "drop-in: capabilities=$(sed -n 's/^CapEff:\t//p' "/proc/$(show MainPID)/status")" \
  "users=$([ "$(readlink "/proc/$(show MainPID)/ns/user")" = "$(readlink /proc/1/ns/user)" ] && echo host)" \
  "hidden=$(grep -c hidepid= "/proc/$(show MainPID)/mounts")"
rm -r /etc/systemd/system/$unit.service.d; systemctl daemon-reload
sed -i '$d' /etc/default/trtllm-exporter; systemctl restart $unit

echo "== watchdog"
mkdir -p /etc/systemd/system/$unit.service.d
printf '[Service]\nWatchdogSec=2\nTimeoutStopSec=2\n' >/etc/systemd/system/$unit.service.d/watchdog.conf
systemctl daemon-reload; systemctl restart $unit; sleep 4; echo "watchdog fed: restarts=$(show NRestarts)"
kill -STOP "$(show MainPID)"; within restarted 0; echo "after-stop=$(show ActiveState) restarts=$(show NRestarts)"
journalctl -b -u $unit --no-pager -o cat | grep -m1 'Watchdog timeout'
rm -r /etc/systemd/system/$unit.service.d; systemctl daemon-reload

echo "== socket activation"
printf 'TRTLLM_EXPORTER_WEB_SYSTEMD_SOCKET=true\n' >>/etc/default/trtllm-exporter
{ echo engines:; echo '- source: socket:/run/trtllm-exporter/ingest.sock'; } >/etc/trtllm-exporter/config.yaml
systemctl stop $unit; systemctl enable --now --quiet $unit.socket $unit-ingest.socket
echo "before=$(show ActiveState) socket=$(stat -c '%a %U %G' /run/trtllm-exporter/ingest.sock)"
page && echo "by-page=$(show ActiveState)"
systemctl stop $unit 2>/dev/null; echo "stopped=$(show ActiveState)"
echo "member=$(publish server) other=$(publish other)"
within is ActiveState active; echo "by-publisher=$(show ActiveState)"
failed=0
for _ in 1 2 3; do
  systemctl restart $unit &
  for _ in $(seq 5); do page || failed=$((failed + 1)); done
  wait
done
echo "restarts without socket: refused scrapes=$failed"
# shellcheck disable=SC2016 # variables of Perl
{ echo '{"hello":{"model":"published","version":"7"}}'; echo '{"iter":1,"numActiveRequests":1}'; sleep 2; } |
  setpriv --reuid=server --regid=server --init-groups perl -MIO::Socket::UNIX -e '$s = IO::Socket::UNIX->new("/run/trtllm-exporter/ingest.sock") or die $!; print $s $_ and $s->flush while <STDIN>' &
within has 'nv_trt_llm_iterations_total{model="published",version="7"} 1' && echo "published=counted"
wait

echo "== credentials"
mkdir -p /etc/trtllm-exporter/tls /etc/systemd/system/$unit.service.d
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=localhost -addext subjectAltName=DNS:localhost -days 1 \
  -keyout /etc/trtllm-exporter/tls/tls.key -out /etc/trtllm-exporter/tls/tls.crt 2>/dev/null
chmod 0600 /etc/trtllm-exporter/tls/tls.key
printf 'tls_server_config:\n  cert_file: tls.crt\n  key_file: tls.key\n' >/etc/trtllm-exporter/tls/web.yaml
cat >/etc/systemd/system/$unit.service.d/tls.conf <<'DROPIN'
[Service]
LoadCredential=web.yaml:/etc/trtllm-exporter/tls/web.yaml
LoadCredential=tls.crt:/etc/trtllm-exporter/tls/tls.crt
LoadCredential=tls.key:/etc/trtllm-exporter/tls/tls.key
Environment=TRTLLM_EXPORTER_WEB_CONFIG_FILE=/run/credentials/trtllm-exporter.service/web.yaml
DROPIN
systemctl daemon-reload; systemctl restart $unit
within curl -fsS --cacert /etc/trtllm-exporter/tls/tls.crt -o /root/page https://localhost:8002/metrics
echo "tls=$(grep -c '^trtllm_exporter_build_info' /root/page) key=$(stat -c '%a %U' /etc/trtllm-exporter/tls/tls.key)"
rm -r /etc/systemd/system/$unit.service.d; systemctl daemon-reload; systemctl restart $unit

echo "== upgrade"
sum=$(md5sum <$configuration) pid=$(show MainPID)
"upgrade_$kind"
within is ActiveState active
[ "$sum" = "$(md5sum <$configuration)" ] && echo "configuration=kept"
echo "upgraded: active=$(show ActiveState) new-process=$([ "$pid" != "$(show MainPID)" ] && echo yes) sockets=$(systemctl is-enabled $unit.socket)"

echo "== remove"
"remove_$kind"
echo "recordings=$(recorded && echo kept)"
rm -r /etc/trtllm-exporter /var/lib/trtllm-exporter
files >/root/after
diff /root/before /root/after && [ ! -e /run/trtllm-exporter ] && echo "left=nothing"
echo "units=$(systemctl list-unit-files --no-legend 'trtllm*' | wc -l)"
userdel other; userdel server
[ "$kind" = deb ] || rm -rf /etc/systemd/system-preset/00-check.preset
echo "== journal"
journalctl -b -u $unit --no-pager -o cat
systemctl poweroff --no-block
