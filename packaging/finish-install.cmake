# The end of an installation: the systemd unit, which must name the prefix; shell completions, which the installed command
# itself prints; the list of files for scripts/uninstall.sh. Variables of CMake's own install script are in force here.

set(root "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}")

set(CMAKE_INSTALL_FULL_BINDIR ${CMAKE_INSTALL_PREFIX}/bin)
configure_file(${unit_template} ${root}/share/berth/systemd/berth.service @ONLY)
list(APPEND CMAKE_INSTALL_MANIFEST_FILES ${CMAKE_INSTALL_PREFIX}/share/berth/systemd/berth.service)

function(install_completion shell path)
  execute_process(COMMAND ${root}/bin/berth completion ${shell} OUTPUT_VARIABLE text RESULT_VARIABLE status ERROR_QUIET)
  if(status EQUAL 0 AND text)
    file(WRITE ${root}/${path} "${text}")
    set(CMAKE_INSTALL_MANIFEST_FILES ${CMAKE_INSTALL_MANIFEST_FILES} ${CMAKE_INSTALL_PREFIX}/${path} PARENT_SCOPE)
  else()
    message(WARNING "berth completion ${shell} failed: no completion installed for it")
  endif()
endfunction()

install_completion(bash share/bash-completion/completions/berth)
install_completion(zsh share/zsh/site-functions/_berth)
install_completion(fish share/fish/vendor_completions.d/berth.fish)

set(lines "")
foreach(file ${CMAKE_INSTALL_MANIFEST_FILES} ${CMAKE_INSTALL_PREFIX}/share/berth/manifest.txt)
  file(RELATIVE_PATH below ${CMAKE_INSTALL_PREFIX} ${file})
  string(APPEND lines "${below}\n")
endforeach()
file(WRITE ${root}/share/berth/manifest.txt "${lines}")
