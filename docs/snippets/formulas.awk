# A formula between single $ stands on one line: broken over two, the site shows it as it is written.
FNR == 1 { code = display = 0; ++pages }
/^ *```/ { code = !code }
code || /^ *```/ { next }
{
  line = $0
  gsub(/`[^`]*`/, "", line)
  if (gsub(/\$\$/, "", line) % 2) display = !display
  else if (!display && gsub(/\$/, "", line) % 2) {
    print FILENAME ":" FNR ": a formula is broken over two lines: " $0
    broken = 1
  }
}
END { exit broken || !pages }
